-- A type, or a word behind it, names a character set as CHARACTER SET does: the table's then says nothing.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, a VARCHAR(9), b NCHAR(5), d NATIONAL VARCHAR(5), e TEXT ASCII, f TEXT UNICODE, h VARCHAR(5) COLLATE latin1_bin, i TEXT BYTE, j JSON, k ENUM('x', 'y') ASCII) CHARACTER SET binary;
INSERT INTO c.t VALUES (1, 'a', 'b', 'd', 'e', 'f', 'h', 'i', '{"k": 1}', 'x');
ALTER TABLE c.t ADD COLUMN l NCHAR(5), ADD COLUMN m NVARCHAR(5), ADD COLUMN n TEXT ASCII, ADD COLUMN o VARCHAR(9) UNICODE, ADD COLUMN p JSON, ADD COLUMN q VARCHAR(5) COLLATE latin1_bin, ADD COLUMN r TEXT, ADD COLUMN s TEXT BYTE, ADD COLUMN u ENUM('x', 'y') ASCII;
INSERT INTO c.t (id, b, d, e, f, j, l, m, n, o, p, q, r, s, u) VALUES (2, 'é', 'é', 'é', 'é', '{"k": 1}', 'é', 'é', 'é', 'é', '{"p": 1}', 'q', 'é', 's', 'y');
ALTER TABLE c.t ADD COLUMN v TEXT, DEFAULT CHARACTER SET latin1;
INSERT INTO c.t (id, v) VALUES (3, 'é');
ALTER TABLE c.t ADD COLUMN w JSON, ADD COLUMN x TEXT, ADD COLUMN y NCHAR(3), DEFAULT CHARACTER SET binary;
INSERT INTO c.t (id, w, x, y) VALUES (4, '{"w": 1}', 'é', 'é');
ALTER TABLE c.t DEFAULT CHARACTER SET utf8mb4, ADD COLUMN z TEXT;
INSERT INTO c.t (id, z) VALUES (5, 'é');
ALTER TABLE c.t MODIFY b VARBINARY(9), MODIFY e BLOB, MODIFY f BLOB, MODIFY y VARBINARY(9);

-- Dates that the copy and the stream make NULL have a text again in another type: the table is held.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, a TIMESTAMP NULL, d DATE NULL, z DATE) CHARACTER SET utf8mb4;
INSERT INTO c.t VALUES (1, '2026-01-01', '2026-01-01', '0000-00-00');
ALTER TABLE c.t COMMENT 'x';
INSERT INTO c.t VALUES (10, '2021-02-31', '2020-02-00', '2020-01-01');
ALTER TABLE c.t MODIFY d VARCHAR(30) NULL;

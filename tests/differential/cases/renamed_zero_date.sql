-- As zero_dates.sql, of a table that has another name meanwhile.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, d DATETIME NULL) CHARACTER SET utf8mb4;
INSERT INTO c.t VALUES (1, '2026-01-01');
ALTER TABLE c.t COMMENT 'x';
INSERT INTO c.t VALUES (2, '2021-02-31');
RENAME TABLE c.t TO c.u, c.u TO c.v, c.v TO c.w;
INSERT INTO c.w VALUES (3, '2026-01-02');
ALTER TABLE c.w MODIFY d VARCHAR(30) NULL;

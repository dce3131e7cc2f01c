-- A lax session makes NULLs dates of zeros, which are NULL in the target: the table is held where they have a text.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, d DATETIME(3) NULL) CHARACTER SET utf8mb4;
INSERT INTO c.t VALUES (1, NULL), (2, '2026-01-01');
ALTER TABLE c.t MODIFY d DATETIME(3) NOT NULL;
ALTER TABLE c.t MODIFY d TIME(6) NULL;

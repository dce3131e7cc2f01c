-- MariaDB fills NULLs with the default of before where it alters in place, and with zeros where it copies.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, i INT NULL DEFAULT 5) CHARACTER SET utf8mb4;
INSERT INTO c.t VALUES (1, NULL), (2, 7);
ALTER TABLE c.t MODIFY i INT NOT NULL DEFAULT 9;

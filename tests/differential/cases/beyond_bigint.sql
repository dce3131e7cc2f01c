-- A lax MySQL takes the lowest number for a float beyond BIGINT.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, f FLOAT NULL) CHARACTER SET utf8mb4;
INSERT INTO c.t VALUES (1, 1e30), (2, 1e15), (3, -1e30);
ALTER TABLE c.t MODIFY f TINYINT NULL;

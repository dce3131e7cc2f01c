-- A lax MariaDB loses the names of an ENUM whose bytes another set changes.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, e ENUM('b','é') CHARACTER SET latin1 NULL) CHARACTER SET utf8mb4;
INSERT INTO c.t VALUES (1, 'b'), (2, 'é');
ALTER TABLE c.t CONVERT TO CHARACTER SET utf8mb4;

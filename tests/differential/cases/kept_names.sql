SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, e ENUM('b','é') CHARACTER SET utf8mb3 NULL, f ENUM('b','c') CHARACTER SET latin1 NULL) CHARACTER SET utf8mb3;
INSERT INTO c.t VALUES (1, 'b', 'c'), (2, 'é', 'b');
ALTER TABLE c.t CONVERT TO CHARACTER SET utf8mb4;

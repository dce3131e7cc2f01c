-- The server computes a STORED column anew when its source changes: no log tells the values.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, v VARCHAR(20), g VARCHAR(40) AS (CONCAT(v, 'x')) STORED) CHARACTER SET utf8mb4;
INSERT INTO c.t (id, v) VALUES (1, 'longer');
ALTER TABLE c.t MODIFY v VARCHAR(3);

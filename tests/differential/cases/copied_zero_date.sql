-- As zero_dates.sql, with a date that only the copy had.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY, z DATE) CHARACTER SET utf8mb4;
INSERT INTO c.t VALUES (1, '0000-01-01');
ALTER TABLE c.t MODIFY z VARCHAR(30) NULL;

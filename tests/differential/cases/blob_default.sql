-- MariaDB reads the default of a BLOB in the set of the table.
SET sql_mode = '', time_zone = '+00:00';
CREATE TABLE c.t (id INT PRIMARY KEY) CHARACTER SET gbk;
INSERT INTO c.t VALUES (1);
ALTER TABLE c.t ADD b TINYBLOB NULL DEFAULT 'привет';

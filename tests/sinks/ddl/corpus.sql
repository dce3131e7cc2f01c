# DDL statements of the tests of TiDB, TiCDC and DM, and below each what told.py says of its effects.
# Tables are in `test` where a statement does not say; `unique i (a b)` is an index of columns a and b, `= ...` a default.

# TiDB, tests/integrationtest/t/ddl: multi_schema_change, column_modify

alter table t add column b int default 2, add column c int default 3;
-- t: add b int = '2', add c int = '3'
alter table t add column (b int default 2, c int default 3);
-- t: add b int = '2', add c int = '3'
alter table t add column (index i(a), index i1(a));
-- t: add index i (a), add index i1 (a)
alter table t add column (b int default 2, index i(a), primary key (a));
-- t: add b int = '2', add index i (a), add primary key (a)
alter table t add column (index i1(a, b, c), index i2(c, b, a), index i3((a + 1)), index i4((c - 1)));
-- t: add index i1 (a b c), add index i2 (c b a), add index i3 (), add index i4 ()
alter table t add column if not exists (c int default 3, d int default 4);
-- t: add c int = '3' if not exists, add d int = '4' if not exists
alter table t add column d int default 4 first, add column e int default 5 after b, add column f int default 6 after b;
-- t: add d int = '4' first, add e int = '5' after b, add f int = '6' after b
alter table t add column b int default 2, add column if not exists a int;
-- t: add b int = '2', add a int if not exists
alter table t add column c double default 3.0, add column d double as (a + b);
-- t: add c double = '3.0', add d double virtual
alter table t drop column a, drop column d, drop column b;
-- t: drop a, drop d, drop b
alter table t drop column a, drop column if exists d, drop column c;
-- t: drop a, drop d if exists, drop c
alter table t add column c int default 3, drop column a, add column d int default 4, drop column b;
-- t: add c int = '3', drop a, add d int = '4', drop b
alter table t add index t(a, b), add index t1(a);
-- t: add index t (a b), add index t1 (a)
alter table t add unique index i1(a), add unique index i2(a, b), add unique index i3(c);
-- t: add unique i1 (a), add unique i2 (a b), add unique i3 (c)
alter table t drop index i3, drop primary key;
-- t: drop index i3, drop primary key
alter table t drop index t, drop column a;
-- t: drop index t, drop a
alter table t add index xa(a), drop index a, add index xc(c), drop index b, drop index c, add index xb(b);
-- t: add index xa (a), drop index a, add index xc (c), drop index b, drop index c, add index xb (b)
alter table t modify column b double default 2 after a, add column c int default 3 after a;
-- t: modify b to b double = '2' after a, add c int = '3' after a
alter table t modify column a tinyint after c, modify column b tinyint, modify column c tinyint first;
-- t: modify a to a tinyint after c, modify b to b tinyint, modify c to c tinyint first
alter table t modify column b char(255) after c, modify column a bigint;
-- t: modify b to b char(255) after c, modify a to a bigint
alter table t change column a b datetime null default '8972-12-24 10:56:03', rename index t to t1;
-- t: modify a to b datetime = '8972-12-24 10:56:03', rename index t to t1
alter table t rename index i to i1, change column b c int;
-- t: rename index i to i1, modify b to c int
alter table t change column a c tinyint null default '111' after b, modify column b time null default '13:51:02' FIRST;
-- t: modify a to c tinyint = '111' after b, modify b to b time = '13:51:02' first
alter table t add column d int default 4, add index i3(c), drop column a, drop column if exists z, add column if not exists e int default 5, drop index i2, add column f int default 6, drop column b, drop index i1, add column if not exists c int;
-- t: add d int = '4', add index i3 (c), drop a, drop z if exists, add e int = '5' if not exists, drop index i2, add f int = '6', drop b, drop index i1, add c int if not exists
alter table t modify column b tinyint, auto_increment = 100;
-- t: modify b to b tinyint
alter table t auto_increment = 110, auto_increment = 90;
-- no effect
alter table t modify column a tinyint, comment = 'abc', charset = utf8mb4;
-- t: modify a to a tinyint, charset of text
alter table t add column b int not null, change column a c char(5) first;
-- t: add b int not null, modify a to c char(5) first
alter table t add index idx2(a), alter index idx visible;
-- t: add index idx2 (a)
ALTER TABLE t ADD unique INDEX idx4 (b), change column a e MEDIUMINT DEFAULT '5280454' FIRST;
-- t: add unique idx4 (b), modify a to e mediumint = '5280454' first
alter table t add index i(a), add primary key (a);
-- t: add index i (a), add primary key (a)
create table t (a int, b int) charset = utf8 shard_row_id_bits=2;
-- create t: a int, b int; no key
create table t (id int, c1 int, c2 int, primary key(id) nonclustered, key i1(c1), key i2(c2), key i3(c1, c2));
-- create t: id int not null, c1 int, c2 int; key id
CREATE TABLE t (a SMALLINT DEFAULT '30219', b TIME NULL DEFAULT '02:45:06', PRIMARY KEY (a));
-- create t: a smallint not null = '30219', b time = '02:45:06'; key a
create table t(a bigint null default '1761233443433596323', index t(a));
-- create t: a bigint = '1761233443433596323'; no key
create table t (a int auto_increment primary key, b int);
-- create t: a int not null = AUTO_INCREMENT, b int; key a
CREATE TABLE test_gv_ddl(a int, b int as (a+8) virtual, c int as (b + 2) stored);
-- create test_gv_ddl: a int, b int virtual, c int stored; no key
create table table_with_gen_col_latin1 (a int, b char(20) as (cast(a as char charset latin1)), c int as (a+100));
-- create table_with_gen_col_latin1: a int, b char(20) virtual, c int virtual; no key
create table table_with_gen_col_string (first_name varchar(10), last_name varchar(10), full_name varchar(255) AS (CONCAT(first_name,' ',last_name)));
-- create table_with_gen_col_string: first_name varchar(10), last_name varchar(10), full_name varchar(255) virtual; no key
alter table table_with_gen_col_string modify column full_name varchar(255) GENERATED ALWAYS AS (CONCAT(last_name,' ' ,first_name) ) VIRTUAL;
-- table_with_gen_col_string: modify full_name to full_name varchar(255) virtual
alter table test_gv_ddl add column d int as (b+2) stored;
-- test_gv_ddl: add d int stored
alter table test_gv_ddl change column c cnew bigint;
-- test_gv_ddl: modify c to cnew bigint
alter table t change a a int default 0.00;
-- t: modify a to a int = '0.00'
alter table t change a a float default '0012.32';
-- t: modify a to a float = '0012.32'
alter table t1 modify b int as (a+2);
-- t1: modify b to b int virtual
alter table t modify column a varchar(10) charset utf8mb4 collate utf8mb4_bin;
-- t: modify a to a varchar(10) charset
create table t(a varchar(10) charset binary);
-- create t: a varbinary(10); no key
create table text_default_text(c1 text not null default '');
-- create text_default_text: c1 text not null = ''; no key
alter table test_rename_column rename column col1 to col2;
-- test_rename_column: rename col1 to col2
alter table test2 change c2 a int not null;
-- test2: modify c2 to a int not null

# TiCDC (pingcap/tiflow), integration tests and unit tests

create database `lower_db` collate utf8mb4_general_ci;
-- no effect
create database `sync_collation_increment` character set utf8;
-- no effect
create database `sync_collation_increment2` character set utf8mb4 collate utf8mb4_general_ci;
-- no effect
drop database if exists `test_panic`;
-- drop database test_panic
create database `test_panic`;
-- no effect
create database `dm_full` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin;
-- no effect
create database `tls` collate utf8mb4_bin;
-- no effect
create database if not exists json_test;
-- no effect
alter table t add column a double null;
-- t: add a double
alter table t modify c_float double null;
-- t: modify c_float to c_float double
alter table t drop column c_smallint;
-- t: drop c_smallint
alter table t modify c_mediumint varchar(10) null;
-- t: modify c_mediumint to c_mediumint varchar(10)
alter table t1 add column col json not null;
-- t1: add col json not null
alter table t1 modify column col json default null;
-- t1: modify col to col json
CREATE VIEW v1 AS SELECT * FROM t1 WHERE c1 > 2;
-- no effect
DROP TABLE recover_and_insert;
-- drop recover_and_insert
RECOVER TABLE recover_and_insert;
-- recover recover_and_insert
alter table `add_and_drop_columns` add col1 int null, add col2 int null, add col3 int null;
-- add_and_drop_columns: add col1 int, add col2 int, add col3 int
alter table `add_and_drop_columns` drop col1, drop col2;
-- add_and_drop_columns: drop col1, drop col2
CREATE VIEW tv3 AS SELECT name FROM t3 WHERE name != "John";
-- no effect
DROP VIEW tv4;
-- no effect
ALTER TABLE t3 COMMENT = 'test comment';
-- no effect
ALTER TABLE t3 ADD PARTITION (PARTITION p4 VALUES LESS THAN (500));
-- t3: add partitions p4 < 500
ALTER TABLE t3 ALTER COLUMN name SET DEFAULT 'test';
-- t3: default of name = 'test'
ALTER TABLE t3 ADD COLUMN age int;
-- t3: add age int
ALTER TABLE t3 ADD COLUMN gender varchar(255) not null default 'male';
-- t3: add gender varchar(255) not null = 'male'
ALTER TABLE t3 ADD INDEX idx_name (name);
-- t3: add index idx_name (name)
ALTER TABLE t3 ADD INDEX idx_name_age (name, age);
-- t3: add index idx_name_age (name age)
ALTER TABLE t3 RENAME INDEX idx_name TO idx_name_new;
-- t3: rename index idx_name to idx_name_new
ALTER TABLE t3 ALTER INDEX idx_name_new INVISIBLE;
-- no effect
ALTER TABLE t3 ALTER INDEX idx_name_new VISIBLE;
-- no effect
ALTER TABLE t4 DROP INDEX idx_name_id;
-- t4: drop index idx_name_id
RENAME TABLE test_ddl1 TO test_ddl;
-- rename test_ddl1 to test_ddl
DROP INDEX test_add_index ON test_ddl;
-- test_ddl: drop index test_add_index
ALTER TABLE test_ddl ADD COLUMN c2 INT NOT NULL;
-- test_ddl: add c2 int not null
TRUNCATE TABLE test_ddl;
-- truncate test_ddl
ALTER TABLE test_ddl3 ADD COLUMN 城市 char(32);
-- test_ddl3: add 城市 char(32)
ALTER TABLE test_ddl3 MODIFY COLUMN 城市 varchar(32);
-- test_ddl3: modify 城市 to 城市 varchar(32)
DROP TABLE IF EXISTS multi_data_type;
-- drop multi_data_type
alter table t truncate partition p3;
-- t: truncate partition p3
alter table t1 add partition (partition p3 values less than (30), partition p4 values less than (40));
-- t1: add partitions p3 < 30, p4 < 40
alter table t1 drop partition p1;
-- t1: drop partition p1
ALTER TABLE t1 EXCHANGE PARTITION p3 WITH TABLE t2;
-- t1: exchange partition p3 with t2
ALTER TABLE t1 EXCHANGE PARTITION p3 WITH TABLE partition_table2.t2;
-- t1: exchange partition p3 with partition_table2.t2
ALTER TABLE t1 REORGANIZE PARTITION p2,p3,p4 INTO (PARTITION p2 VALUES LESS THAN (20), PARTITION p3 VALUES LESS THAN (26), PARTITION p4 VALUES LESS THAN (35), PARTITION pMax VALUES LESS THAN (MAXVALUE));
-- t1: partitions p2 p3 p4 into p2 < 20, p3 < 26, p4 < 35, pMax < max
DROP DATABASE `测试库`;
-- drop database 测试库
RENAME TABLE `rename_t1` TO `rename_t4`, `rename_t2` TO `rename_t1`, `rename_t3` TO `rename_t2`;
-- rename rename_t1 to rename_t4; rename rename_t2 to rename_t1; rename rename_t3 to rename_t2
ALTER TABLE binary_columns ADD c_new INT;
-- binary_columns: add c_new int
rename table t1 to t1_1;
-- rename t1 to t1_1
rename table t1 to t1_7, t2 to t2_7;
-- rename t1 to t1_7; rename t2 to t2_7
drop table t3, t4;
-- drop t3; drop t4
ALTER TABLE attributes_t1 ATTRIBUTES='merge_option=deny';
-- no effect
ALTER TABLE attributes_t2 PARTITION p0 ATTRIBUTES='merge_option=allow';
-- no effect
FLASHBACK TABLE attributes_t1 TO attributes_t1_back;
-- recover attributes_t1 as attributes_t1_back
RENAME TABLE attributes_t1_back TO attributes_t1_new;
-- rename attributes_t1_back to attributes_t1_new
DROP TABLE IF EXISTS ttl_t1, ttl_t2, ttl_t3, ttl_t4;
-- drop ttl_t1; drop ttl_t2; drop ttl_t3; drop ttl_t4
ALTER TABLE ttl_t2 TTL=`t` + INTERVAL 1 DAY;
-- no effect
ALTER TABLE ttl_t3 TTL_ENABLE='ON';
-- no effect
ALTER TABLE ttl_t4 REMOVE TTL;
-- no effect
ALTER TABLE ttl_t5 TTL_JOB_INTERVAL='7h';
-- no effect
RENAME TABLE `cross_db_1`.`t1` TO `cross_db_2`.`t1`;
-- rename cross_db_1.t1 to cross_db_2.t1
alter table ddl_not_done add column `good_id` bigint(20) unsigned null;
-- ddl_not_done: add good_id bigint(20) unsigned
DROP VIEW IF EXISTS V1;
-- no effect
ALTER TABLE bar MODIFY COLUMN COL2 FLOAT;
-- bar: modify COL2 to COL2 float
ALTER TABLE foo.t1 CHANGE COL COL2 VARCHAR(255);
-- foo.t1: modify COL to COL2 varchar(255)
ALTER TABLE t2 REORGANIZE PARTITION p3 INTO ( PARTITION p31 VALUES LESS THAN (2002), PARTITION p32 VALUES LESS THAN (2005), PARTITION p33 VALUES LESS THAN (2008) );
-- t2: partitions p3 into p31 < 2002, p32 < 2005, p33 < 2008
ALTER TABLE t2 REORGANIZE PARTITION p31,p32,p33,p2 INTO (PARTITION p21 VALUES LESS THAN (2008));
-- t2: partitions p31 p32 p33 p2 into p21 < 2008
ALTER TABLE t2 PARTITION BY HASH(id) PARTITIONS 10;
-- t2: partitions hash by id: p0, p1, p2, p3, p4, p5, p6, p7, p8, p9
CREATE INDEX j_idx ON t3 (j) INVISIBLE;
-- t3: add index j_idx (j)
ALTER TABLE t3 ADD INDEX k_idx (k) INVISIBLE;
-- t3: add index k_idx (k)
CREATE INDEX idx1 ON t4 ((col1 + col2));
-- t4: add index idx1 ()
CREATE INDEX idx2 ON t4 ((col1 + col2), (col1 - col2), col1);
-- t4: add index idx2 ()
ALTER TABLE t4 ADD INDEX ((col1 * 40) DESC);
-- t4: add index ()
ALTER TABLE t4 ADD PRIMARY KEY pk(col1);
-- t4: add primary key (col1)
ALTER TABLE t6 REMOVE PARTITIONING;
-- t6: partitions unknown
ALTER TABLE foo.t5 EXCHANGE PARTITION p0 WITH TABLE foo.t6;
-- foo.t5: exchange partition p0 with foo.t6
RENAME TABLE t8 To rename_t8, t9 To rename_t9;
-- rename t8 to rename_t8; rename t9 to rename_t9
RENAME TABLE rename_t8 TO test.t8;
-- unsupported: it does not say from which database it takes the table
ALTER TABLE products AUTO_INCREMENT = 101;
-- no effect
alter table t1 add unique key(account_id);
-- t1: add unique (account_id)
alter table t0 drop primary key;
-- t0: drop primary key
alter table t1 drop key id;
-- t1: drop index id
alter table t11 add constraint fk_6 foreign key (b) references t10(id) on delete cascade on update cascade;
-- no effect
alter table tt drop foreign key tt_app_id;
-- no effect
alter table tp_int modify c_tinyint int;
-- tp_int: modify c_tinyint to c_tinyint int
alter table tp_int2 modify column c_smallint smallint unsigned default 2345;
-- tp_int2: modify c_smallint to c_smallint smallint unsigned = '2345'
alter table tp_int2 modify c_tinyint varchar(5);
-- tp_int2: modify c_tinyint to c_tinyint varchar(5)
alter table tp_real add column c_double double default 3.1415926;
-- tp_real: add c_double double = '3.1415926'
alter table tp_unsigned_real alter column c_unsigned_float set default 2020.23333;
-- tp_unsigned_real: default of c_unsigned_float = '2020.23333'
alter table tp_unsigned_real alter column c_unsigned_double drop default;
-- tp_unsigned_real: default of c_unsigned_double none
alter table tp_unsigned_real modify column c_unsigned_decimal_2 decimal(8, 4);
-- tp_unsigned_real: modify c_unsigned_decimal_2 to c_unsigned_decimal_2 decimal(8,4)
alter table tp_time modify column c_datetime timestamp;
-- tp_time: modify c_datetime to c_datetime timestamp
alter table tp_time add column c_timestamp2 timestamp default current_timestamp;
-- tp_time: add c_timestamp2 timestamp = CURRENT_TIMESTAMP
alter table tp_time modify column c_timestamp2 timestamp default "2024-07-04 15:00:00";
-- tp_time: modify c_timestamp2 to c_timestamp2 timestamp = '2024-07-04 15:00:00'
alter table tp_time add column c_timestamp2 timestamp default now();
-- tp_time: add c_timestamp2 timestamp = CURRENT_TIMESTAMP
alter table tp_char_binary modify column c_binary binary(24);
-- tp_char_binary: modify c_binary to c_binary binary(24)
alter table tp_other modify column c_enum enum ('a', 'b', 'c','d') null;
-- tp_other: modify c_enum to c_enum enum('a','b','c','d')
alter table tp_other modify column c_set set ('a', 'b', 'c', 'd') null;
-- tp_other: modify c_set to c_set set('a','b','c','d')
alter table tp_other modify column c_bit bit(20) null;
-- tp_other: modify c_bit to c_bit bit(20)
alter table tp_unsigned_int add column (a int not null default 3);
-- tp_unsigned_int: add a int not null = '3'
ALTER TABLE example1 MODIFY COLUMN b INT UNSIGNED;
-- example1: modify b to b int unsigned
ALTER TABLE example3 MODIFY COLUMN b DATETIME;
-- example3: modify b to b datetime
ALTER TABLE example7 MODIFY COLUMN b VARCHAR (256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- example7: modify b to b varchar(256) charset
ALTER TABLE example11 MODIFY COLUMN b INT;
-- example11: modify b to b int
ALTER TABLE example13 MODIFY COLUMN b ENUM('a', 'b');
-- example13: modify b to b enum('a','b')
ALTER TABLE example18 REORGANIZE PARTITION pBefore1950,p1950 INTO (PARTITION pBefore1960 VALUES LESS THAN (1960));
-- example18: partitions pBefore1950 p1950 into pBefore1960 < 1960
ALTER TABLE example18 REORGANIZE PARTITION `p1990to2010` INTO (PARTITION p1990 VALUES LESS THAN (2000), PARTITION p2000 VALUES LESS THAN (2010), PARTITION p2010 VALUES LESS THAN (2020), PARTITION p2020 VALUES LESS THAN (2030), PARTITION pMax VALUES LESS THAN (MAXVALUE));
-- example18: partitions p1990to2010 into p1990 < 2000, p2000 < 2010, p2010 < 2020, p2020 < 2030, pMax < max
drop table table20, table3;
-- drop table20; drop table3
CREATE INDEX idx_partial_create_index ON t2 (col) WHERE col2 > 100;
-- t2: add index idx_partial_create_index ()
ALTER TABLE t3 ADD INDEX idx_partial_alter(col) WHERE col2 > 100;
-- t3: add index idx_partial_alter ()
ALTER TABLE t1 partition by range(a) (partition p0 values less than (5), PARTITION p2 VALUES LESS THAN (20), PARTITION p3 VALUES LESS THAN (26), PARTITION p4 VALUES LESS THAN (35), PARTITION pMax VALUES LESS THAN (MAXVALUE));
-- t1: partitions range by a: p0 < 5, p2 < 20, p3 < 26, p4 < 35, pMax < max
CREATE SEQUENCE seq0 start with 1 minvalue 1 maxvalue 999999999999999 increment by 1 nocache cycle;
-- no effect
alter table t add column c3 int first;
-- t: add c3 int first
alter table t add column c4 int after c1;
-- t: add c4 int after c1
alter table t1 add column col4_5 varchar(20) not null after col4;
-- t1: add col4_5 varchar(20) not null after col4
alter table t1 add column col7 varchar(30) not null after col5;
-- t1: add col7 varchar(30) not null after col5
alter table t1 add column col8 datetime not null;
-- t1: add col8 datetime not null
alter table t1 change column col2 fourth varchar(30) not null after col3;
-- t1: modify col2 to fourth varchar(30) not null after col3
alter table t1 modify column col6 int not null first;
-- t1: modify col6 to col6 int not null first
ALTER TABLE t5 MODIFY s CHAR(10) BINARY;
-- t5: modify s to s char(10)
ALTER TABLE t6 MODIFY s BINARY(10);
-- t6: modify s to s binary(10)
ALTER TABLE t8 MODIFY COLUMN f3 INT AFTER f1;
-- t8: modify f3 to f3 int after f1
ALTER TABLE t10 ADD c3 char(16) NOT NULL DEFAULT '' AFTER c2;
-- t10: add c3 char(16) not null = '' after c2
ALTER TABLE t10 MODIFY c2 char(100) NOT NULL DEFAULT '' AFTER c1;
-- t10: modify c2 to c2 char(100) not null = '' after c1
alter table t11 change v v2 varchar(32);
-- t11: modify v to v2 varchar(32)
alter table t2 modify big bigint unsigned not null;
-- t2: modify big to big bigint unsigned not null
alter table t2 add key (big);
-- t2: add index (big)
alter table t2 modify big bigint not null;
-- t2: modify big to big bigint not null
DROP TABLE IF EXISTS table1,table2;
-- drop table1; drop table2
DROP VIEW IF EXISTS view1,view2,view3,view4;
-- no effect
ALTER TABLE multi_data_type SET TIFLASH REPLICA 1;
-- no effect
DROP TABLE IF EXISTS test.simple1;
-- drop simple1
ALTER TABLE test.simple1 ADD column embedding VECTOR(3) COMMENT "hnsw(distance=cosine)";
-- simple1: add embedding vector(3)
ALTER TABLE test.simple2 DROP column embedding;
-- simple2: drop embedding
alter table t modify column b int default 2;
-- t: modify b to b int = '2'
alter table t add column b int default 1;
-- t: add b int = '1'
ALTER DATABASE Test CHARACTER SET utf8mb4;
-- no effect
alter table T add a varchar(45);
-- T: add a varchar(45)
DROP TABLE test_ddl1.simple_test3;
-- drop test_ddl1.simple_test3
ALTER TABLE test_ddl1.simple_test1 ADD COLUMN c1 INT NOT NULL;
-- test_ddl1.simple_test1: add c1 int not null
ALTER TABLE test_ddl1.simple_test1 ADD c2 INT NOT NULL AFTER id;
-- test_ddl1.simple_test1: add c2 int not null after id
ALTER TABLE test_ddl1.simple_test1 ADD c3 INT NOT NULL, ADD c4 INT NOT NULL;
-- test_ddl1.simple_test1: add c3 int not null, add c4 int not null
ALTER TABLE test_ddl1.simple_test1 DROP c1;
-- test_ddl1.simple_test1: drop c1
ALTER TABLE test_ddl1.simple_test1 DROP c2, DROP c3;
-- test_ddl1.simple_test1: drop c2, drop c3
ALTER TABLE test_ddl1.simple_test1 ADD INDEX (c4);
-- test_ddl1.simple_test1: add index (c4)
ALTER TABLE test_ddl1.simple_test1 DROP INDEX c4;
-- test_ddl1.simple_test1: drop index c4
ALTER DATABASE test_ddl1 CHARACTER SET = binary COLLATE binary;
-- unsupported: the text columns of its new tables may hold bytes
ALTER TABLE test_ddl1.simple_test2 ALTER INDEX c1 INVISIBLE;
-- no effect
ALTER TABLE test_ddl1.simple_test2 RENAME INDEX c1 TO idx_c1;
-- test_ddl1.simple_test2: rename index c1 to idx_c1
ALTER TABLE test_ddl1.simple_test2 MODIFY c2 BIGINT;
-- test_ddl1.simple_test2: modify c2 to c2 bigint
CREATE VIEW test_ddl1.view_test2 AS SELECT * FROM test_ddl1.simple_test2 WHERE id > 2;
-- no effect
DROP VIEW test_ddl1.view_test2;
-- no effect
ALTER TABLE test_ddl2.employees DROP PARTITION p2;
-- test_ddl2.employees: drop partition p2
ALTER TABLE test_ddl2.employees ADD PARTITION (PARTITION p4 VALUES LESS THAN (25));
-- test_ddl2.employees: add partitions p4 < 25
ALTER TABLE test_ddl2.employees TRUNCATE PARTITION p3;
-- test_ddl2.employees: truncate partition p3
alter table test_ddl2.employees comment='modify comment';
-- no effect
alter table test_ddl2.simple_test1 drop primary key;
-- test_ddl2.simple_test1: drop primary key
alter table test_ddl2.simple_test1 add primary key pk(id);
-- test_ddl2.simple_test1: add primary key (id)
ALTER TABLE test_ddl2.simple_test1 ALTER id SET DEFAULT 18;
-- test_ddl2.simple_test1: default of id = '18'
ALTER TABLE test_ddl2.simple_test1 CHARACTER SET = utf8mb4;
-- test_ddl2.simple_test1: charset of text
ALTER TABLE test_ddl2.employees REORGANIZE PARTITION p3 INTO (PARTITION p2 VALUES LESS THAN (15), PARTITION p3 VALUES LESS THAN (20));
-- test_ddl2.employees: partitions p3 into p2 < 15, p3 < 20
recover table test_ddl2.employees;
-- recover test_ddl2.employees
ALTER TABLE test.t1 ADD COLUMN c1 CHAR(16) NOT NULL;
-- t1: add c1 char(16) not null
rename table test1.t1 to test1.t10, test1.t2 to test1.t20;
-- rename test1.t1 to test1.t10; rename test1.t2 to test1.t20
drop table test.t1, test.t2;
-- drop t1; drop t2
create view test.view1 as select * from test.tb1 where id > 100;
-- no effect
ALTER TABLE test.t1 ADD COLUMN a int;
-- t1: add a int
drop table test0.table0;
-- drop test0.table0
alter table t add primary key(a) clustered;
-- t: add primary key (a)
ALTER TABLE `t` ADD PRIMARY KEY(`a`) /*T![clustered_index] CLUSTERED */;
-- t: add primary key (a)
ALTER TABLE `t` /*T![force_inc] FORCE */AUTO_INCREMENT = 12;
-- no effect
alter table t force, auto_increment = 12;
-- no effect
ALTER TABLE `t` FORCE /* AlterTableForce is not supported */ ,;
-- no effect
ALTER TABLE t3 PLACEMENT POLICY=DEFAULT;
-- no effect
ALTER TABLE `t3`;
-- no effect
ALTER TABLE t1 PLACEMENT POLICY=p10;
-- no effect
ALTER TABLE t1 PLACEMENT POLICY=p10, add d text(50);
-- t1: add d text(50)
ALTER TABLE `t1` ADD COLUMN `d` TEXT(50);
-- t1: add d text(50)
alter table tp PARTITION p1 placement policy p2;
-- no effect
alter table t add d text(50) PARTITION p1 placement policy p2;
-- t: add d text(50)
alter table tp set tiflash replica 1 PARTITION p1 placement policy p2;
-- no effect
ALTER DATABASE TestResetPlacementDB PLACEMENT POLICY SET DEFAULT;
-- no effect
ALTER DATABASE TestResetPlacementDB PLACEMENT POLICY p1 charset utf8mb4;
-- no effect
ALTER DATABASE `TestResetPlacementDB` CHARACTER SET = utf8mb4;
-- no effect
ALTER TABLE t1 TTL=`t` + INTERVAL 1 DAY TTL_ENABLE='ON';
-- no effect
ALTER TABLE `t1` /*T![ttl] TTL_JOB_INTERVAL = '7h' */;
-- no effect
alter table t add index j((cast(j->'$.number[*]' as signed array)));
-- t: add index j ()
ALTER TABLE `t` ADD INDEX `j`((CAST(JSON_EXTRACT(`j`, _UTF8'$.number[*]');
-- unsupported: it cannot be read: an opening parenthesis has no closing one
alter table t add index idx (b) pre_split_regions(between (1) and (100) regions 4);
-- t: add index idx (b)
ALTER TABLE `t` ADD INDEX `idx`(`b`) /*T![pre_split] PRE_SPLIT_REGIONS = (BETWEEN (1) AND (100) REGIONS 4) */;
-- t: add index idx (b)
rename table test1.t1 to test1.t11, test1.t3 to test1.t33, test1.t5 to test1.t55, ignore1.a to ignore1.b;
-- rename test1.t1 to test1.t11; rename test1.t3 to test1.t33; rename test1.t5 to test1.t55; rename ignore1.a to ignore1.b
rename table test2.t1 to test2.t11, test2.t2 to test2.t22, test2.t3 to test2.t33;
-- rename test2.t1 to test2.t11; rename test2.t2 to test2.t22; rename test2.t3 to test2.t33
truncate table test1.t1;
-- truncate test1.t1
ALTER TABLE test1.t4 ADD UNIQUE KEY cdc_valid_index (id);
-- test1.t4: add unique cdc_valid_index (id)
alter table test.table1 add col2 varchar(64);
-- table1: add col2 varchar(64)
alter table t add column updatetime datetime(6) default current_timestamp(6);
-- t: add updatetime datetime(6) = CURRENT_TIMESTAMP
create function abc;
-- no effect
ALTER TABLE t1 MODIFY COLUMN age int(11) NOT NULL;
-- t1: modify age to age int(11) not null
Drop Index i1 on test3.t1;
-- test3.t1: drop index i1
alter table schema1.table1 add Birthday date;
-- schema1.table1: add Birthday date
alter table test.t1 add column address varchar(255) not null;
-- t1: add address varchar(255) not null
alter table test.t1 rename to test.t2;
-- rename t1 to t2
RENAME TABLE test.table1 to test.table2;
-- rename table1 to table2
ALTER TABLE `TBL1` CHANGE COLUMN `value` `value2` VARCHAR(512);
-- TBL1: modify value to value2 varchar(512)
ALTER TABLE `TBL1` MODIFY COLUMN `value2` VARCHAR(512) FIRST;
-- TBL1: modify value2 to value2 varchar(512) first
ALTER TABLE `TBL1` ALTER COLUMN `payload` SET DEFAULT _UTF8MB4'a';
-- TBL1: default of payload = 'a'
ALTER TABLE `TBL1` MODIFY COLUMN `a` INT NULL;
-- TBL1: modify a to a int
ALTER TABLE `TBL1` MODIFY COLUMN `a` INT NOT NULL;
-- TBL1: modify a to a int not null
CREATE INDEX `idx_a` ON `TBL1` (`a`);
-- TBL1: add index idx_a (a)
ALTER TABLE TBL1 ADD COLUMN `new_col` INT, ADD INDEX `idx_new_col` (`a`);
-- TBL1: add new_col int, add index idx_new_col (a)
ALTER TABLE TBL1 DROP COLUMN `new_col`, DROP INDEX `idx_new_col`;
-- TBL1: drop new_col, drop index idx_new_col
ALTER TABLE TBL2 CHANGE COLUMN `id` `id2` INT;
-- TBL2: modify id to id2 int
ALTER TABLE TBL2 PARTITION BY RANGE (id2) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20));
-- TBL2: partitions range by id2: p0 < 10, p1 < 20
ALTER TABLE TBL2 REORGANIZE PARTITION p1 INTO (PARTITION p3 VALUES LESS THAN (40));
-- TBL2: partitions p1 into p3 < 40
ALTER TABLE TBL2 CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin;
-- TBL2: charset of text

# TiCDC (pingcap/ticdc)

DROP DATABASE IF EXISTS `test`;
-- drop database test
rename table a to common.c, b to a, common.c to b;
-- unsupported: it does not say from which database it takes the table; rename b to a; rename common.c to b
rename table x to z, common.y to x, z to common.y;
-- rename x to z; rename common.y to x; unsupported: it does not say from which database it takes the table
rename table test1 to common.test2, common.test2 to test3, common.test4 to test1, test3 to common.test4;
-- unsupported: it does not say from which database it takes the table; rename common.test2 to test3; rename common.test4 to test1; unsupported: it does not say from which database it takes the table
alter table test5 rename to test7;
-- rename test5 to test7
alter table test6 rename to common_1.test8;
-- unsupported: it does not say from which database it takes the table
drop table if exists `t`;
-- drop t
ALTER TABLE t1 ADD COLUMN site_code VARCHAR(64) NOT NULL DEFAULT '100';
-- t1: add site_code varchar(64) not null = '100'
ALTER TABLE t1 MODIFY COLUMN site_code VARCHAR(64) NOT NULL DEFAULT '';
-- t1: modify site_code to site_code varchar(64) not null = ''
ALTER TABLE t1 ADD PRIMARY KEY (a, site_code);
-- t1: add primary key (a site_code)
ALTER TABLE t1 ADD COLUMN c DECIMAL NULL;
-- t1: add c decimal(10,0)
ALTER TABLE t1 ADD COLUMN d FLOAT NULL DEFAULT 600.0;
-- t1: add d float = '600.0'
ALTER TABLE t1 ADD COLUMN e DECIMAL NOT NULL;
-- t1: add e decimal(10,0) not null
ALTER TABLE t1 MODIFY COLUMN site_code VARCHAR(64) NULL;
-- t1: modify site_code to site_code varchar(64)
rename table rename_mix_normal_1 to rename_mix_normal_1_done, rename_mix_part_1 to rename_mix_part_1_done;
-- rename rename_mix_normal_1 to rename_mix_normal_1_done; rename rename_mix_part_1 to rename_mix_part_1_done
alter table test1 add column c1 int;
-- test1: add c1 int
alter table test2 drop column val;
-- test2: drop val
alter table test1 add index idx_test (id);
-- test1: add index idx_test (id)
alter table test1 modify column c1 bigint;
-- test1: modify c1 to c1 bigint
alter table test1 drop index idx_test;
-- test1: drop index idx_test
truncate table test2;
-- truncate test2
rename table test1 to test3;
-- rename test1 to test3
drop table test3;
-- drop test3
recover table test3;
-- recover test3
ALTER TABLE tp_account ADD COLUMN note VARCHAR(32) NULL;
-- tp_account: add note varchar(32)
ALTER TABLE test_ddl3 ADD COLUMN 城市 CHAR(32);
-- test_ddl3: add 城市 char(32)
ALTER TABLE test_ddl3 MODIFY COLUMN 城市 VARCHAR(32);
-- test_ddl3: modify 城市 to 城市 varchar(32)
alter table tp_time add column c_newcol datetime default null;
-- tp_time: add c_newcol datetime
CREATE INDEX idx_email ON users(email);
-- users: add index idx_email (email)
ALTER TABLE users ADD COLUMN phone VARCHAR(20);
-- users: add phone varchar(20)
ALTER TABLE t1 REORGANIZE PARTITION p2,p3,p4,pMax INTO (PARTITION pRest VALUES LESS THAN (MAXVALUE));
-- t1: partitions p2 p3 p4 pMax into pRest < max
ALTER TABLE users ADD COLUMN created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP;
-- users: add created_at timestamp = CURRENT_TIMESTAMP
RENAME TABLE `source_db`.`cross_move_source` TO `source_extra_db`.`cross_move_target`;
-- rename source_db.cross_move_source to source_extra_db.cross_move_target
RENAME TABLE multi_rename_a TO multi_rename_a_new, multi_rename_b TO multi_rename_b_new;
-- rename multi_rename_a to multi_rename_a_new; rename multi_rename_b to multi_rename_b_new
alter table test1 add unique key uk_c1 (c1);
-- test1: add unique uk_c1 (c1)
RENAME TABLE cross_move TO route_name_extra.cross_moved;
-- unsupported: it does not say from which database it takes the table
RENAME TABLE swap_a TO swap_tmp, swap_b TO swap_a, swap_tmp TO swap_b;
-- rename swap_a to swap_tmp; rename swap_b to swap_a; rename swap_tmp to swap_b
DROP TABLE drop_1, drop_2;
-- drop drop_1; drop drop_2
ALTER TABLE partitioned_events ADD PARTITION (PARTITION p2 VALUES LESS THAN (30));
-- partitioned_events: add partitions p2 < 30
ALTER TABLE partitioned_events TRUNCATE PARTITION p0;
-- partitioned_events: truncate partition p0
ALTER TABLE partitioned_events DROP PARTITION p1;
-- partitioned_events: drop partition p1
ALTER TABLE `test`.`t` ADD COLUMN `c2` INT;
-- t: add c2 int
ALTER TABLE `common_1`.`add_and_drop_columns` ADD COLUMN `col1` INT NULL, ADD COLUMN `col2` INT NULL, ADD COLUMN `col3` INT NULL;
-- common_1.add_and_drop_columns: add col1 int, add col2 int, add col3 int
ALTER TABLE `common_1`.`add_and_drop_columns` DROP COLUMN `col1`, DROP COLUMN `col2`;
-- common_1.add_and_drop_columns: drop col1, drop col2
alter table test.table1 exchange partition p0 with table test.table2;
-- table1: exchange partition p0 with table2
alter table source_db.partitioned exchange partition p0 with table source_db.exchange_table;
-- source_db.partitioned: exchange partition p0 with source_db.exchange_table
RENAME TABLE "SourceDB"."OldTable" TO "TargetDB"."NewTable";
-- unsupported: it cannot be read: a name is missing where 'SourceDB' stands
RENAME TABLE `source_db`.`source_t1` TO `target_db`.`target_t1`, `source_db`.`source_t2` TO `target_db`.`target_t2`;
-- rename source_db.source_t1 to target_db.target_t1; rename source_db.source_t2 to target_db.target_t2
RENAME TABLE `test`.`a` TO `test`.`c`, `test`.`b` TO `test`.`a`, `test`.`c` TO `test`.`b`;
-- rename a to c; rename b to a; rename c to b
DROP TABLE `schema``x`.`table``x`;
-- drop schema`x.table`x
alter table t add column c2 int, add index (c1);
-- t: add c2 int, add index (c1)
alter table t add index idx_c1(c1), add index (c1);
-- t: add index idx_c1 (c1), add index (c1)
alter table t add column c2 int, add index idx_c1(c1), add index (c1);
-- t: add c2 int, add index idx_c1 (c1), add index (c1)
alter table t drop index idx_old, add index (a);
-- t: drop index idx_old, add index (a)
alter table t add primary key(id), add index (a);
-- t: add primary key (id), add index (a)
ALTER TABLE `test_db`.`t1` ADD INDEX `idx_id`(`id`);
-- test_db.t1: add index idx_id (id)
alter table t1 rename index i1 to i2;
-- t1: rename index i1 to i2
DROP DATABASE `s1`;
-- drop database s1
DROP TABLE `s1`.`t1`, `s2`.`t2`;
-- drop s1.t1; drop s2.t2
DROP TABLE `s1`.`t1`, `s2`.`t2`, `xx`;
-- drop s1.t1; drop s2.t2; drop xx
DROP TABLE `xs1`.`xt1`, `xs2`.`xt2`, `xtest`.`xxx`;
-- drop xs1.xt1; drop xs2.xt2; drop xtest.xxx
RENAME TABLE `t1` TO `t2`, `s1`.`t1` TO `t2`;
-- rename t1 to t2; rename s1.t1 to t2
DROP INDEX `i1` ON `s1`.`t1`;
-- s1.t1: drop index i1
DROP INDEX `i1` ON `t1`;
-- t1: drop index i1
ALTER TABLE `t1` ADD COLUMN `c1` INT, DROP COLUMN `c2`;
-- t1: add c1 int, drop c2
ALTER TABLE `xtest`.`xt1` ADD COLUMN `c1` INT, DROP COLUMN `c2`;
-- xtest.xt1: add c1 int, drop c2
ALTER TABLE `s1`.`t1` ADD COLUMN `c1` INT, RENAME AS `t2`, DROP COLUMN `c2`;
-- s1.t1: add c1 int, drop c2; rename s1.t1 to s1.t2
ALTER TABLE `xs1`.`xt1` ADD COLUMN `c1` INT, RENAME AS `xtest`.`xt2`, DROP COLUMN `c2`;
-- xs1.xt1: add c1 int, drop c2; rename xs1.xt1 to xtest.xt2
ALTER TABLE `t1` ADD COLUMN IF NOT EXISTS `c1` INT;
-- t1: add c1 int if not exists
ALTER TABLE `t1` ADD INDEX IF NOT EXISTS(`a`) USING BTREE COMMENT 'a';
-- t1: add index (a) if not exists
ALTER TABLE `t1` ADD CONSTRAINT `fk_t2_id` FOREIGN KEY IF NOT EXISTS (`t2_id`) REFERENCES `t2`(`id`);
-- no effect
ALTER TABLE `xtest`.`xt1` ADD CONSTRAINT `fk_t2_id` FOREIGN KEY /*T! IF NOT EXISTS */(`t2_id`) REFERENCES `xtest`.`xt2`(`id`);
-- no effect
CREATE INDEX IF NOT EXISTS `i1` ON `t1` (`c1`);
-- t1: add index i1 (c1) if not exists
ALTER TABLE `t1` ADD PARTITION IF NOT EXISTS (PARTITION `p2` VALUES LESS THAN (MAXVALUE));
-- t1: add partitions p2 < max
ALTER TABLE `t1` DROP COLUMN IF EXISTS `c2`;
-- t1: drop c2 if exists
ALTER TABLE `t1` CHANGE COLUMN IF EXISTS `a` `b` VARCHAR(255);
-- t1: modify a to b varchar(255) if exists
ALTER TABLE `t1` MODIFY COLUMN IF EXISTS `a` VARCHAR(255);
-- t1: modify a to a varchar(255) if exists
ALTER TABLE `t1` DROP INDEX IF EXISTS `i1`;
-- t1: drop index i1
ALTER TABLE `t1` DROP FOREIGN KEY `fk_t2_id`;
-- no effect
ALTER TABLE `t1` DROP PARTITION IF EXISTS `p2`;
-- t1: drop partition p2
ALTER TABLE `t1` PARTITION BY HASH (`a`) PARTITIONS 1;
-- t1: partitions hash by a: p0
ALTER TABLE `t1` PARTITION BY KEY (`a`) PARTITIONS 1;
-- t1: partitions unknown
ALTER TABLE `t1` PARTITION BY RANGE (`a`) (PARTITION `x` VALUES LESS THAN (75));
-- t1: partitions range by a: x < 75
ALTER TABLE `t1` PARTITION BY LIST COLUMNS (`a`,`b`) (PARTITION `x` VALUES IN ((10, 20)));
-- t1: partitions list by a b: x in 10 20
ALTER TABLE `t1` PARTITION BY LIST (`a`) (PARTITION `x` DEFAULT);
-- t1: partitions list by a: x default
ALTER TABLE `t1` PARTITION BY SYSTEM_TIME (PARTITION `x` HISTORY,PARTITION `y` CURRENT);
-- t1: partitions unknown
ALTER TABLE `t1` ADD COLUMN (`c1` INT, `c2` INT);
-- t1: add c1 int, add c2 int
ALTER TABLE `xtest`.`t1` ADD COLUMN (`c1` INT, `c2` INT);
-- xtest.t1: add c1 int, add c2 int
ALTER TABLE `other_db`.`child` ADD CONSTRAINT `fk_order` FOREIGN KEY (`order_id`) REFERENCES `source_db`.`orders`(`id`);
-- no effect
ALTER TABLE `cross_dst`.`dst` RENAME TO `cross_src`.`dst_moved`;
-- rename cross_dst.dst to cross_src.dst_moved
TRUNCATE TABLE `source_truncate_table`.`t_truncate`;
-- truncate source_truncate_table.t_truncate
FLASHBACK TABLE `source_recover_table`.`t_recover`;
-- recover source_recover_table.t_recover
ALTER TABLE `source_modify_table_comment`.`t_comment` COMMENT = 'hello';
-- no effect
ALTER TABLE `source_modify_table_charset`.`t_charset` COLLATE utf8mb4_general_ci;
-- source_modify_table_charset.t_charset: charset of text
ALTER TABLE `source_add_partition`.`pt_add` ADD PARTITION (PARTITION `p2` VALUES LESS THAN (30));
-- source_add_partition.pt_add: add partitions p2 < 30
ALTER TABLE `source_drop_partition`.`pt_drop` DROP PARTITION `p0`;
-- source_drop_partition.pt_drop: drop partition p0
ALTER TABLE `source_truncate_partition`.`pt_truncate` TRUNCATE PARTITION `p0`;
-- source_truncate_partition.pt_truncate: truncate partition p0
ALTER TABLE `source_reorganize_partition`.`pt_reorganize` REORGANIZE PARTITION `p0`, `p1` INTO (PARTITION `p01` VALUES LESS THAN (20));
-- source_reorganize_partition.pt_reorganize: partitions p0 p1 into p01 < 20
ALTER TABLE `source_alter_partitioning`.`t_partitioning` PARTITION BY HASH(`id`) PARTITIONS 4;
-- source_alter_partitioning.t_partitioning: partitions hash by id: p0, p1, p2, p3
ALTER TABLE `source_remove_partitioning`.`pt_remove` REMOVE PARTITIONING;
-- source_remove_partitioning.pt_remove: partitions unknown
ALTER TABLE `source_drop_column`.`t_drop_column` DROP COLUMN `c1`;
-- source_drop_column.t_drop_column: drop c1
ALTER TABLE `source_modify_column`.`t_modify_column` MODIFY COLUMN `c1` BIGINT;
-- source_modify_column.t_modify_column: modify c1 to c1 bigint
ALTER TABLE `source_set_default`.`t_set_default` ALTER COLUMN `c1` SET DEFAULT 5;
-- source_set_default.t_set_default: default of c1 = '5'
ALTER TABLE `source_rebase_auto_id`.`t_rebase` AUTO_INCREMENT = 100;
-- no effect
ALTER TABLE `source_add_primary_key`.`t_add_pk` ADD PRIMARY KEY(`id`);
-- source_add_primary_key.t_add_pk: add primary key (id)
ALTER TABLE `source_drop_primary_key`.`t_drop_pk` DROP PRIMARY KEY;
-- source_drop_primary_key.t_drop_pk: drop primary key
CREATE INDEX `idx_c1` ON `source_add_index`.`t_add_index`(`c1`);
-- source_add_index.t_add_index: add index idx_c1 (c1)
ALTER TABLE `source_rename_index`.`t_rename_index` RENAME INDEX `idx_c1` TO `idx_c2`;
-- source_rename_index.t_rename_index: rename index idx_c1 to idx_c2
ALTER TABLE `source_alter_index_visibility`.`t_alter_index` ALTER INDEX `idx_c1` INVISIBLE;
-- no effect
ALTER TABLE `source_alter_ttl_info`.`t_ttl_info` TTL_ENABLE = 'ON';
-- no effect
ALTER TABLE `source_alter_ttl_remove`.`t_ttl_remove` REMOVE TTL;
-- no effect
ALTER TABLE `source_drop_foreign_key`.`t1` DROP FOREIGN KEY `fk_t2`;
-- no effect
drop schema aaa;
-- drop database aaa
alter table t change column b c int;
-- t: modify b to c int
alter table t drop primary key;
-- t: drop primary key
alter table t add primary key(a);
-- t: add primary key (a)
alter table t add key idx(b);
-- t: add index idx (b)
alter table t add unique index idx(b);
-- t: add unique idx (b)
alter table t2 add FOREIGN KEY fk (a) references t2(a);
-- no effect
alter table t alter column c set default 5;
-- t: default of c = '5'
alter table t reorganize partition p0, p1 into (partition p0 values less than (20));
-- t: partitions p0 p1 into p0 < 20
alter table t exchange partition p0 with table t1;
-- t: exchange partition p0 with t1
alter table t1 remove partitioning;
-- t1: partitions unknown
alter table t1 character set utf8mb4;
-- t1: charset of text
rename table test.table1 to test.table2;
-- rename table1 to table2
alter table t exchange partition p2 with table db2.t2;
-- t: exchange partition p2 with db2.t2
drop table if exists test.t;
-- drop t
alter table t add index (name), add unique (age);
-- t: add index (name), add unique (age)
alter table t_anon_idx add index (a), add unique (b, c);
-- t_anon_idx: add index (a), add unique (b c)
alter table t_anon_idx add index (a), add column d int;
-- t_anon_idx: add index (a), add d int

# DM (pingcap/tiflow)

alter table t1 add column info json;
-- t1: add info json
alter table t1 add column gen_id int as (info->'$.id');
-- t1: add gen_id int virtual
alter table t1 add index multi_col(`id`, `gen_id`, ts);
-- t1: add index multi_col (id gen_id ts)
alter table t1 add column info2 varchar(40);
-- t1: add info2 varchar(40)
alter table t1 add unique key gen_idx(`gen_id`);
-- t1: add unique gen_idx (gen_id)
alter table t1 add column lat decimal(9,6) default '0.000000';
-- t1: add lat decimal(9,6) = '0.000000'
alter table t1 add column bin bit(1) default NULL;
-- t1: add bin bit(1)
alter table t1 add column big1 bigint;
-- t1: add big1 bigint
alter table t1 add column big2 bigint unsigned;
-- t1: add big2 bigint unsigned
drop database if exists `adjust_gtid`;
-- drop database adjust_gtid
alter table t_extract add column alt_a int as (j ->> '$.a');
-- t_extract: add alt_a int virtual
alter table t_extract add column alt_b char(10) as (j ->> '$.b');
-- t_extract: add alt_b char(10) virtual
alter table t_extract add column alt_j1 json as (json_search(j, 'one', '1'));
-- t_extract: add alt_j1 json virtual
alter table t_extract add column alt_j2 json as (json_array(j ->> '$.a', j ->> '$.b'));
-- t_extract: add alt_j2 json virtual
alter table t_extract add column alt_j3 json as (json_object('a', j ->> '$.a', 'b', j ->> '$.b'));
-- t_extract: add alt_j3 json virtual
alter table t_extract add column alt_j4 json as (json_merge_preserve(b, '{"k": "v"}'));
-- t_extract: add alt_j4 json virtual
alter table t_extract add column alt_j11 int as (json_contains(b, '{"k": "v"}'));
-- t_extract: add alt_j11 int virtual
alter table t_extract add column alt_j12 int as (json_contains_path(b, 'one', '$.k'));
-- t_extract: add alt_j12 int virtual
alter table Do_Table drop column `dt`;
-- Do_Table: drop dt
alter table Do_Table add index `idx_name_ts` (`name`, `ts`);
-- Do_Table: add index idx_name_ts (name ts)
alter table t1 add column gen_id int as (info->"$.id");
-- t1: add gen_id int virtual
alter table `dmctl`.`t_1` drop column d;
-- dmctl.t_1: drop d
create index idx_col on tb(col);
-- tb: add index idx_col (col)
alter table tb drop column col, drop index idx_col;
-- tb: drop col, drop index idx_col
alter table t1 add index idx1(c1);
-- t1: add index idx1 (c1)
alter table t1 add unique index uidx1(c1);
-- t1: add unique uidx1 (c1)
alter table t1 add column dummy int;
-- t1: add dummy int
alter table t2 add column c int as (id + 1);
-- t2: add c int virtual
alter table t6 add column name2 varchar(20) character set latin1 default 'Müller…';
-- t6: add name2 varchar(20) = 'Müller…' charset
drop table t7, t8;
-- drop t7; drop t8
alter table t11 add foreign key (b) references t10(id) on delete cascade on update cascade;
-- no effect
ALTER TABLE t1 ADD COLUMN note VARCHAR(32) DEFAULT '';
-- t1: add note varchar(32) = ''
alter table new_relay.t1 add column notused int;
-- new_relay.t1: add notused int
alter table new_relay.t1 drop column notused, drop column notused2;
-- new_relay.t1: drop notused, drop notused2
alter table new_relay.t1 add column new_col1 int, add column new_col2 int;
-- new_relay.t1: add new_col1 int, add new_col2 int
alter table gho_t2 add key name (name);
-- gho_t2: add index name (name)
alter table gho_t2 add column info_json json GENERATED ALWAYS AS (`info`) VIRTUAL;
-- gho_t2: add info_json json virtual
alter table t1 add column age int after name, add column level int after name;
-- t1: add age int after name, add level int after name
alter table t1 add column age2 int after age;
-- t1: add age2 int after age
alter table t1 add column e int, add index e(e);
-- t1: add e int, add index e (e)
alter table t1 add unique (id_gen);
-- t1: add unique (id_gen)
alter table t1 add key multi_col_idx(uid, id_gen);
-- t1: add index multi_col_idx (uid id_gen)
alter table t2 add column create_by DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00';
-- t2: add create_by datetime not null = '0000-00-00 00:00:00'
drop table sharding2.t2;
-- drop sharding2.t2
truncate table sharding2.t3;
-- truncate sharding2.t3
drop database sharding2;
-- drop database sharding2
alter table sharding22.t1 add column name varchar(20);
-- sharding22.t1: add name varchar(20)
alter table sharding22.t1 add index abc(name);
-- sharding22.t1: add index abc (name)
alter table sharding22.t1 add column e int, add index e(e);
-- sharding22.t1: add e int, add index e (e)
alter table t1 comment 'a';
-- no effect
ALTER TABLE bar ADD COLUMN c1 TEXT;
-- bar: add c1 text
ALTER TABLE bar ADD COLUMN c1 DATETIME;
-- bar: add c1 datetime
drop schema `s1`;
-- drop database s1
drop schema if exists `s1`;
-- drop database s1
DROP TABLE IF EXISTS `Ss1`.`tT1`;
-- drop Ss1.tT1
drop table `s1`.`t1`, `s2`.`t2`;
-- drop s1.t1; drop s2.t2
drop table `s1`.`t1`, `s2`.`t2`, `xx`;
-- drop s1.t1; drop s2.t2; drop xx
truncate table `t1`;
-- truncate t1
rename table `s1`.`t1` to `s2`.`t2`;
-- rename s1.t1 to s2.t2
rename table `t1` to `t2`, `s1`.`t1` to `t2`;
-- rename t1 to t2; rename s1.t1 to t2

# TiDB's parser, as it writes statements back

CREATE SEQUENCE `seq` INCREMENT BY -9223372036854775807;
-- no effect
DROP TEMPORARY TABLE `t`;
-- no effect
CREATE GLOBAL TEMPORARY TABLE `t` (`a` INT,`b` VARCHAR(255)) ON COMMIT DELETE ROWS;
-- no effect
CREATE GLOBAL TEMPORARY TABLE `t` (`a` INT,`b` VARCHAR(255)) PARTITION BY HASH (`a`) PARTITIONS 10 ON COMMIT DELETE ROWS;
-- no effect
ALTER TABLE `t_n` UNION = (), KEY_BLOCK_SIZE = 1;
-- unsupported: its part UNION is unknown here
ALTER TABLE `d_n`.`t_n` UNION = (`t_n`) REMOVE PARTITIONING;
-- unsupported: its part UNION is unknown here
ALTER TABLE `d_n`.`t_n` LOCK = DEFAULT, UNION = (`t_n`,`d_n`.`t_n`) REMOVE PARTITIONING;
-- unsupported: its part UNION is unknown here
ALTER TABLE `d_n`.`t_n` ALGORITHM = DEFAULT, MAX_ROWS = 10, UNION = (`d_n`.`t_n`), ROW_FORMAT = REDUNDANT, STATS_PERSISTENT = DEFAULT /* TableOptionStatsPersistent is not supported */;
-- unsupported: its part UNION is unknown here
ALTER TABLE `t` PLACEMENT POLICY = `ww`;
-- no effect
ALTER TABLE `m` PARTITION `t` PLACEMENT POLICY = `ww`;
-- no effect
DROP DATABASE `xxx`;
-- drop database xxx
DROP DATABASE IF EXISTS `xxx`;
-- drop database xxx
DROP TABLE `xxx`, `yyy`;
-- drop xxx; drop yyy
DROP TABLE IF EXISTS `xxx`;
-- drop xxx
DROP TABLE IF EXISTS `xxx`, `yyy`;
-- drop xxx; drop yyy
DROP STATS `t`;
-- no effect
DROP STATS `t` PARTITION `p0`;
-- no effect
ALTER TABLE `t` ENCRYPTION = 'y';
-- no effect
ALTER TABLE `t` ADD COLUMN (`a` SMALLINT UNSIGNED);
-- t: add a smallint unsigned
ALTER TABLE `t` ADD COLUMN IF NOT EXISTS (`a` SMALLINT UNSIGNED);
-- t: add a smallint unsigned if not exists
ALTER TABLE `t` ADD COLUMN (`a` SMALLINT UNSIGNED, `b` VARCHAR(255));
-- t: add a smallint unsigned, add b varchar(255)
ALTER TABLE `t` ADD COLUMN IF NOT EXISTS (`a` SMALLINT UNSIGNED, `b` VARCHAR(255));
-- t: add a smallint unsigned if not exists, add b varchar(255) if not exists
ALTER TABLE `t` ADD COLUMN `a` SMALLINT UNSIGNED;
-- t: add a smallint unsigned
ALTER TABLE `t` ADD COLUMN `a` SMALLINT UNSIGNED FIRST;
-- t: add a smallint unsigned first
ALTER TABLE `t` ADD COLUMN `a` SMALLINT UNSIGNED AFTER `b`;
-- t: add a smallint unsigned after b
ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `a` SMALLINT UNSIGNED AFTER `b`;
-- t: add a smallint unsigned after b if not exists
ALTER TABLE `employees` ADD PARTITION;
-- employees: partitions unknown
ALTER TABLE `employees` ADD PARTITION (PARTITION `P1` VALUES LESS THAN (2010));
-- employees: add partitions P1 < 2010
ALTER TABLE `employees` ADD PARTITION IF NOT EXISTS (PARTITION `P2` VALUES LESS THAN (MAXVALUE));
-- employees: add partitions P2 < max
ALTER TABLE `employees` ADD PARTITION IF NOT EXISTS PARTITIONS 5;
-- employees: add partitions 5
ALTER TABLE `employees` ADD PARTITION (PARTITION `P1` VALUES LESS THAN (2010), PARTITION `P2` VALUES LESS THAN (2015), PARTITION `P3` VALUES LESS THAN (MAXVALUE));
-- employees: add partitions P1 < 2010, P2 < 2015, P3 < max
ALTER TABLE `t` ADD PARTITION (PARTITION `x` VALUES IN ((3, 4), (5, 6)));
-- t: add partitions x in 3 4 | 5 6
ALTER TABLE `t_n` REBUILD PARTITION ALL;
-- no effect
ALTER TABLE `d_n`.`t_n` REBUILD PARTITION NO_WRITE_TO_BINLOG ALL;
-- no effect
ALTER TABLE `t_n` REBUILD PARTITION NO_WRITE_TO_BINLOG `ident`,`ident`;
-- no effect
ALTER TABLE `t` DROP PARTITION `p1`;
-- t: drop partition p1
ALTER TABLE `t` DROP PARTITION IF EXISTS `p2`;
-- t: drop partition p2
ALTER TABLE `t` DROP PARTITION `p1`,`p2`;
-- t: drop partition p1 p2
ALTER TABLE `t` DROP PARTITION IF EXISTS `p1`,`p2`;
-- t: drop partition p1 p2
ALTER TABLE `clients` COALESCE PARTITION 3;
-- clients: add partitions -3
ALTER TABLE `t` DISABLE KEYS;
-- no effect
ALTER TABLE `t` MODIFY COLUMN `a` VARCHAR(255);
-- t: modify a to a varchar(255)
ALTER TABLE `t` MODIFY COLUMN IF EXISTS `a` VARCHAR(255);
-- t: modify a to a varchar(255) if exists
ALTER TABLE `t` CHANGE COLUMN `a` `b` VARCHAR(255);
-- t: modify a to b varchar(255)
ALTER TABLE `t` CHANGE COLUMN IF EXISTS `a` `b` VARCHAR(255);
-- t: modify a to b varchar(255) if exists
ALTER TABLE `t` CHANGE COLUMN `a` `b` VARCHAR(255) BINARY CHARACTER SET UTF8;
-- t: modify a to b varchar(255) charset
ALTER TABLE `t` CHANGE COLUMN `a` `b` VARCHAR(255) FIRST;
-- t: modify a to b varchar(255) first
ALTER TABLE `db`.`t` RENAME AS `db1`.`t1`;
-- rename db.t to db1.t1
ALTER TABLE `t` RENAME AS `t1`;
-- rename t to t1
ALTER TABLE `t` RENAME COLUMN `a` TO `b`;
-- t: rename a to b
ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT 1;
-- t: default of a = '1'
ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT (CURRENT_TIMESTAMP());
-- t: default of a = CURRENT_TIMESTAMP
ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT (1+1);
-- t: default of a = (1 + 1)
ALTER TABLE `t` ALTER COLUMN `a` DROP DEFAULT;
-- t: default of a none
ALTER TABLE `t` ADD COLUMN `a` SMALLINT UNSIGNED, LOCK = NONE;
-- t: add a smallint unsigned
ALTER TABLE `t` ADD COLUMN `a` SMALLINT UNSIGNED, LOCK = DEFAULT;
-- t: add a smallint unsigned
ALTER TABLE `t` ADD FULLTEXT `FullText`(`name`);
-- t: add index FullText (name)
ALTER TABLE `t` ADD INDEX(`a`) USING BTREE COMMENT 'a';
-- t: add index (a)
ALTER TABLE `t` ADD INDEX IF NOT EXISTS(`a`) USING BTREE COMMENT 'a';
-- t: add index (a) if not exists
ALTER TABLE `t` ADD PRIMARY KEY `ident`(`a`, `b`) USING RTREE;
-- t: add primary key (a b)
ALTER TABLE `t` ADD INDEX(`a`) USING RTREE;
-- t: add index (a)
ALTER TABLE `t` ADD INDEX(`ident`, `ident`(123)) USING RTREE;
-- t: add index (ident ident)
ALTER TABLE `t` ADD PRIMARY KEY(`a`) COMMENT 'a';
-- t: add primary key (a)
ALTER TABLE `t` ADD UNIQUE(`a`) COMMENT 'a';
-- t: add unique (a)
ALTER TABLE `t` ADD CONSTRAINT `fk_t2_id` FOREIGN KEY (`t2_id`) REFERENCES `t`(`id`);
-- no effect
ALTER TABLE `t` ADD CONSTRAINT `fk_t2_id` FOREIGN KEY IF NOT EXISTS (`t2_id`) REFERENCES `t`(`id`);
-- no effect
ALTER TABLE `t` ADD CONSTRAINT `c_1` CHECK(1+1) NOT ENFORCED, ADD UNIQUE(`a`);
-- t: add unique (a)
ALTER TABLE `t` ADD CONSTRAINT `c_1` CHECK(1+1) ENFORCED, ADD UNIQUE(`a`);
-- t: add unique (a)
ALTER TABLE `t` ENGINE = innodb;
-- no effect
ALTER TABLE `db`.`t` ENGINE = '';
-- no effect
ALTER TABLE `t` ADD COLUMN `a` SMALLINT UNSIGNED, ADD COLUMN `a` SMALLINT;
-- t: add a smallint unsigned, add a smallint
ALTER TABLE `t` ADD COLUMN `a` SMALLINT, ENGINE = '', DEFAULT COLLATE = UTF8_GENERAL_CI;
-- t: add a smallint, charset of text
ALTER TABLE `t` ENGINE = '', COMMENT = '', DEFAULT COLLATE = UTF8_GENERAL_CI;
-- t: charset of text
ALTER TABLE `t` ENGINE = '', ADD COLUMN `a` SMALLINT;
-- t: add a smallint
ALTER TABLE `t` DEFAULT COLLATE = UTF8_GENERAL_CI, ENGINE = '', ADD COLUMN `a` SMALLINT;
-- t: charset of text, add a smallint
ALTER TABLE `t` AUTO_INCREMENT = 3;
-- no effect
ALTER TABLE `hello-world@dev`.`User` ADD COLUMN `name` MEDIUMTEXT CHARACTER SET UTF8MB4 COLLATE utf8mb4_unicode_ci NOT NULL, ALGORITHM = DEFAULT;
-- hello-world@dev.User: add name mediumtext not null charset
ALTER TABLE `hello-world@dev`.`User` ADD COLUMN `name` MEDIUMTEXT CHARACTER SET UTF8MB4 COLLATE utf8mb4_unicode_ci NOT NULL, ALGORITHM = INPLACE;
-- hello-world@dev.User: add name mediumtext not null charset
ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8;
-- t: convert to text
ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8 COLLATE UTF8_BIN;
-- t: convert to text
ALTER TABLE `d_n`.`t_n` CONVERT TO CHARACTER SET DEFAULT;
-- d_n.t_n: convert to text
ALTER TABLE `d_n`.`t_n` CONVERT TO CHARACTER SET DEFAULT COLLATE UTF8MB4_0900_AI_CI;
-- d_n.t_n: convert to text
ALTER TABLE `t` FORCE /* AlterTableForce is not supported */;
-- no effect
ALTER TABLE `t` DROP INDEX `a`;
-- t: drop index a
ALTER TABLE `t` DROP INDEX IF EXISTS `a`;
-- t: drop index a
ALTER TABLE `t` ALTER INDEX `a` INVISIBLE;
-- no effect
ALTER TABLE `t` ALTER INDEX `a` VISIBLE;
-- no effect
ALTER TABLE `t` DROP FOREIGN KEY `a`;
-- no effect
ALTER TABLE `t` DROP FOREIGN KEY IF EXISTS `a`;
-- no effect
ALTER TABLE `t` DROP COLUMN `a`;
-- t: drop a
ALTER TABLE `t` DROP COLUMN IF EXISTS `a`;
-- t: drop a if exists
ALTER TABLE `t` RENAME INDEX `a` TO `b`;
-- t: rename index a to b
ALTER TABLE `d_n`.`t_n` DROP CHECK `ident`;
-- no effect
ALTER TABLE `t_n` LOCK = DEFAULT, DROP CHECK `ident`;
-- no effect
ALTER TABLE `t_n` ALTER CHECK `ident` ENFORCED;
-- no effect
ALTER TABLE `t_n` ALTER CHECK `ident` NOT ENFORCED;
-- no effect
ALTER TABLE `t_n` DROP CHECK `ident`;
-- no effect
ANALYZE TABLE `t` PARTITION `a`;
-- no effect
ANALYZE TABLE `t` PARTITION `a` WITH 4 BUCKETS;
-- no effect
ANALYZE TABLE `t` PARTITION `a` INDEX `b`;
-- no effect
ANALYZE TABLE `t` PARTITION `a` INDEX `b` WITH 4 BUCKETS;
-- no effect
ALTER TABLE `t` PARTITION BY HASH (`a`) PARTITIONS 1;
-- t: partitions hash by a: p0
ALTER TABLE `t` PARTITION BY RANGE (`a`) (PARTITION `x` VALUES LESS THAN (75));
-- t: partitions range by a: x < 75
ALTER TABLE `t` COMMENT = 'cmt' PARTITION BY HASH (`a`) PARTITIONS 1;
-- no effect
ALTER TABLE `t` ENABLE KEYS, COMMENT = 'cmt' PARTITION BY HASH (`a`) PARTITIONS 1;
-- no effect
ALTER TABLE `t` PARTITION BY LIST COLUMNS (`a`) (PARTITION `p0` VALUES IN (5, 10, 15));
-- t: partitions list by a: p0 in 5 | 10 | 15
ALTER TABLE `t` PARTITION BY RANGE COLUMNS (`a`,`b`,`c`) (PARTITION `p1` VALUES LESS THAN (1, 1, 1));
-- t: partitions range by a b c: p1 < 1 1 1
ALTER TABLE `t` PARTITION BY LIST COLUMNS (`a`,`b`,`c`) (PARTITION `p0` VALUES IN ((5, 10, 15)));
-- t: partitions list by a b c: p0 in 5 10 15
ALTER TABLE `t` WITH VALIDATION, ADD COLUMN `b` INT GENERATED ALWAYS AS(`a`+1) VIRTUAL;
-- t: add b int virtual
ALTER TABLE `t` WITHOUT VALIDATION, ADD COLUMN `b` INT GENERATED ALWAYS AS(`a`+1) VIRTUAL;
-- t: add b int virtual
ALTER TABLE `t` WITHOUT VALIDATION, WITH VALIDATION, ADD COLUMN `b` INT GENERATED ALWAYS AS(`a`+1) VIRTUAL;
-- t: add b int virtual
ALTER TABLE `t` WITH VALIDATION, MODIFY COLUMN `b` INT GENERATED ALWAYS AS(`a`+2) VIRTUAL;
-- t: modify b to b int virtual
ALTER TABLE `t` WITH VALIDATION, CHANGE COLUMN `b` `c` INT GENERATED ALWAYS AS(`a`+2) VIRTUAL;
-- t: modify b to c int virtual
ALTER TABLE `d_n`.`t_n` ADD PARTITION NO_WRITE_TO_BINLOG;
-- d_n.t_n: partitions unknown
ALTER TABLE `t` WITH VALIDATION, EXCHANGE PARTITION `p` WITH TABLE `nt` WITHOUT VALIDATION;
-- t: exchange partition p with nt
ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `nt`;
-- t: exchange partition p with nt
ALTER TABLE `t` REORGANIZE PARTITION;
-- no effect
ALTER TABLE `members` REORGANIZE PARTITION `n0` INTO (PARTITION `s0` VALUES LESS THAN (1960), PARTITION `s1` VALUES LESS THAN (1970));
-- members: partitions n0 into s0 < 1960, s1 < 1970
ALTER TABLE `members` REORGANIZE PARTITION `p1`,`p2`,`p3` INTO (PARTITION `s0` VALUES LESS THAN (1960), PARTITION `s1` VALUES LESS THAN (1970));
-- members: partitions p1 p2 p3 into s0 < 1960, s1 < 1970
ALTER TABLE `t` REORGANIZE PARTITION NO_WRITE_TO_BINLOG `remove` INTO (PARTITION `p0` VALUES LESS THAN (1991));
-- t: partitions unknown
ALTER TABLE `t` ATTRIBUTES='str';
-- no effect
ALTER TABLE `t` ATTRIBUTES=DEFAULT;
-- no effect
ALTER TABLE `t` PARTITION `p` ATTRIBUTES='str';
-- no effect
ALTER TABLE `t` PARTITION `p` ATTRIBUTES=DEFAULT;
-- no effect
CREATE INDEX `idx` ON `t` (`a`);
-- t: add index idx (a)
CREATE INDEX IF NOT EXISTS `idx` ON `t` (`a`);
-- t: add index idx (a) if not exists
CREATE UNIQUE INDEX `idx` ON `t` (`a`);
-- t: add unique idx (a)
CREATE UNIQUE INDEX IF NOT EXISTS `idx` ON `t` (`a`);
-- t: add unique idx (a) if not exists
CREATE UNIQUE INDEX `ident` ON `d_n`.`t_n` (`ident`, `ident`) USING BTREE;
-- d_n.t_n: add unique ident (ident ident)
CREATE FULLTEXT INDEX `idx` ON `t` (`a`) WITH PARSER `ident`;
-- t: add index idx (a)
CREATE FULLTEXT INDEX `idx` ON `t` (`a`) WITH PARSER `ident` COMMENT 'string';
-- t: add index idx (a)
CREATE INDEX `idx` ON `t` (`a`) COMMENT 'foo';
-- t: add index idx (a)
CREATE INDEX `idx` ON `t` (`a`) LOCK = NONE;
-- t: add index idx (a)
CREATE INDEX `idx` ON `t` (`a`) VISIBLE;
-- t: add index idx (a)
CREATE INDEX `idx` ON `t` (`a`) INVISIBLE;
-- t: add index idx (a)
CREATE INDEX `idx` ON `t` (`a`) ALGORITHM = INPLACE LOCK = EXCLUSIVE;
-- t: add index idx (a)
DROP INDEX `a` ON `t`;
-- t: drop index a
DROP INDEX `a` ON `db`.`t`;
-- db.t: drop index a
DROP INDEX IF EXISTS `a` ON `t`;
-- t: drop index a
DROP INDEX IF EXISTS `a` ON `db`.`t`;
-- db.t: drop index a
DROP INDEX `idx` ON `t` ALGORITHM = INPLACE;
-- t: drop index idx
DROP INDEX `idx` ON `t` ALGORITHM = INPLACE LOCK = EXCLUSIVE;
-- t: drop index idx
RENAME TABLE `t` TO `t1`;
-- rename t to t1
RENAME TABLE `d`.`t` TO `d1`.`t1`;
-- rename d.t to d1.t1
RENAME TABLE `t1` TO `t2`, `t3` TO `t4`;
-- rename t1 to t2; rename t3 to t4
TRUNCATE TABLE `t1`;
-- truncate t1
ALTER TABLE `d_n`.`t_n` SECONDARY_UNLOAD;
-- unsupported: its part SECONDARY_UNLOAD is unknown here
ALTER TABLE `d_n`.`t_n` ALGORITHM = DEFAULT, SECONDARY_UNLOAD;
-- unsupported: its part SECONDARY_UNLOAD is unknown here
ALTER TABLE `t` MODIFY COLUMN `a` BIGINT COLUMN_FORMAT DEFAULT;
-- t: modify a to a bigint
RECOVER TABLE BY JOB 11;
-- unsupported: it does not say which DROP TABLE: if the last one, apply RECOVER TABLE with its name
FLASHBACK DATABASE `db1`;
-- unsupported: it brings the tables of a database back, and TiCDC does not send their rows: pass over it, and load these tables anew
FLASHBACK DATABASE `db1` TO `db2`;
-- unsupported: it brings the tables of a database back, and TiCDC does not send their rows: pass over it, and load these tables anew
FLASHBACK CLUSTER TO TIMESTAMP '2021-05-26 16:45:26';
-- unsupported: it takes the cluster back to an earlier time, and TiCDC does not send the DDLs that are taken back, nor is it known here to send all rows: pass over it, and load the tables anew
FLASHBACK TABLE `t` TO TIMESTAMP '2021-05-26 16:45:26';
-- unsupported: it brings rows back that TiCDC does not send: load the tables anew
RECOVER TABLE `t1`;
-- recover t1
FLASHBACK TABLE `t`;
-- recover t
FLASHBACK TABLE `t` TO `t1`;
-- recover t as t1
ALTER TABLE `t` REMOVE PARTITIONING;
-- t: partitions unknown
ALTER TABLE `db`.`ident` REMOVE PARTITIONING;
-- db.ident: partitions unknown
ALTER TABLE `t` LOCK = DEFAULT REMOVE PARTITIONING;
-- no effect
ALTER TABLE `t` ADD COLUMN `a` DOUBLE(4,2) UNSIGNED ZEROFILL REFERENCES `b` MATCH FULL ON UPDATE SET NULL FIRST;
-- t: add a double(4,2) unsigned first
ALTER TABLE `d_n`.`t_n` ADD CONSTRAINT `ident` FOREIGN KEY (`ident`(1)) REFERENCES `d_n`.`t_n` MATCH FULL ON DELETE SET NULL;
-- no effect
ALTER TABLE `t_n` ADD CONSTRAINT `ident` FOREIGN KEY (`ident`, `ident`(1)) REFERENCES `t_n` MATCH FULL ON DELETE RESTRICT ON UPDATE SET NULL;
-- no effect
ALTER TABLE `d_n`.`t_n` ADD CONSTRAINT `ident` FOREIGN KEY (`ident`, `ident`(1)) REFERENCES `t_n` MATCH PARTIAL ON DELETE CASCADE REMOVE PARTITIONING;
-- no effect
ALTER TABLE `d_n`.`t_n` ADD CONSTRAINT FOREIGN KEY (`ident`) REFERENCES `d_n`.`t_n` MATCH SIMPLE ON DELETE CASCADE ON UPDATE CASCADE;
-- no effect
ALTER TABLE `t_n` STORAGE DISK, MODIFY COLUMN `ident` VARCHAR(12) COLUMN_FORMAT FIXED FIRST;
-- t_n: modify ident to ident varchar(12) first
ALTER TABLE `d_n`.`t_n` MODIFY COLUMN `ident` MEDIUMTEXT AFTER `ident` REMOVE PARTITIONING;
-- d_n.t_n: modify ident to ident mediumtext after ident
ALTER TABLE `t_n` CHANGE COLUMN `ident` `ident` MEDIUMTEXT BINARY CHARACTER SET UTF8 FIRST, TABLESPACE = `ident`;
-- t_n: modify ident to ident mediumtext charset first
ALTER TABLE `d_n`.`t_n` WITHOUT VALIDATION, ADD PARTITION (PARTITION `ident` VALUES LESS THAN (MAXVALUE) ENGINE = text_string MAX_ROWS = 12);
-- d_n.t_n: add partitions ident < max
ALTER TABLE `d_n`.`t_n` WITH VALIDATION, ADD PARTITION NO_WRITE_TO_BINLOG (PARTITION `ident` VALUES LESS THAN (MAXVALUE) ENGINE = text_string, PARTITION `ident` VALUES LESS THAN (MAXVALUE) (SUBPARTITION `text_string` MIN_ROWS = 11));
-- d_n.t_n: partitions unknown
ALTER TABLE `d_n`.`t_n` WITH VALIDATION, ADD PARTITION NO_WRITE_TO_BINLOG (PARTITION `ident` VALUES IN (MAXVALUE) ENGINE = text_string MAX_ROWS = 12);
-- d_n.t_n: partitions unknown
ALTER TABLE `t` ADD COLUMN (CHECK(TRUE) ENFORCED);
-- no effect
ALTER TABLE `t` ADD COLUMN (CONSTRAINT `ident` CHECK(1>2) NOT ENFORCED);
-- no effect
ALTER TABLE `t` ADD COLUMN (`b` INT, UNIQUE `c`(`b`));
-- t: add b int, add unique c (b)
ALTER TABLE `t` ADD COLUMN (CHECK(TRUE) ENFORCED, CHECK(TRUE) ENFORCED);
-- no effect
ALTER TABLE `t` ADD COLUMN (`a1` INT, CONSTRAINT `b1` CHECK(`a1`>0) ENFORCED);
-- t: add a1 int
ALTER TABLE `t` ADD COLUMN (`a1` INT, `a2` INT, CONSTRAINT `b1` CHECK(`a1`>0) ENFORCED, CONSTRAINT `b2` CHECK(`a2`<10) ENFORCED);
-- t: add a1 int, add a2 int
ALTER TABLE `t` ADD COLUMN (`a1` INT, PRIMARY KEY(`a1`));
-- t: add a1 int, add primary key (a1)
ALTER TABLE `t` ADD COLUMN (`a1` INT, `a2` INT, PRIMARY KEY(`a1`), UNIQUE(`a2`));
-- t: add a1 int, add a2 int, add primary key (a1), add unique (a2)
ALTER TABLE `ident` ADD COLUMN (CONSTRAINT `ident` FOREIGN KEY (`EXECUTE`(123)) REFERENCES `t`(`a`) MATCH SIMPLE ON DELETE CASCADE ON UPDATE SET NULL);
-- no effect
ALTER TABLE `t` ADD COLUMN `a` DATE CHECK(`a`>0) ENFORCED FIRST;
-- t: add a date first
ALTER TABLE `t` ADD COLUMN `a1` INT CONSTRAINT `ident` CHECK(`a1`>1) ENFORCED REFERENCES `b` ON DELETE CASCADE ON UPDATE CASCADE;
-- t: add a1 int
ALTER TABLE `t` ADD COLUMN `a` TINYBLOB CONSTRAINT `ident` CHECK(1>2) ENFORCED REFERENCES `b` ON DELETE CASCADE ON UPDATE CASCADE;
-- t: add a tinyblob
ALTER TABLE `t` ADD COLUMN `a2` INT CONSTRAINT `ident` CHECK(`a2`>1) ENFORCED;
-- t: add a2 int
ALTER TABLE `t` ADD COLUMN `a2` INT CONSTRAINT `ident` CHECK(`a2`>1) NOT ENFORCED;
-- t: add a2 int
ALTER TABLE `t` SET TIFLASH REPLICA 0;
-- no effect
CREATE SEQUENCE `sequence`;
-- no effect
CREATE SEQUENCE IF NOT EXISTS `seq`;
-- no effect
CREATE SEQUENCE IF NOT EXISTS `seq` INCREMENT BY 1;
-- no effect
CREATE SEQUENCE IF NOT EXISTS `seq` START WITH 1;
-- no effect
CREATE SEQUENCE `seq` INCREMENT BY 1 START WITH 0 MINVALUE 0 MAXVALUE 1000;
-- no effect
CREATE SEQUENCE IF NOT EXISTS `seq` CACHE 1 INCREMENT BY 1 START WITH -1 MINVALUE 0 MAXVALUE 1000;
-- no effect
ALTER TABLE `t` AUTO_INCREMENT = 30, AUTO_RANDOM_BASE = 40;
-- no effect
ALTER TABLE `t` ADD PRIMARY KEY(`a`, `b`) CLUSTERED;
-- t: add primary key (a b)
ALTER TABLE `t` ADD PRIMARY KEY(`a`, `b`) NONCLUSTERED;
-- t: add primary key (a b)
ALTER TABLE `t1` TRUNCATE PARTITION `p0`;
-- t1: truncate partition p0
ALTER TABLE `t1` TRUNCATE PARTITION `p0`,`p1`;
-- t1: truncate partition p0 p1
ALTER TABLE `t1` REPAIR PARTITION `p0`;
-- no effect
ALTER TABLE `t1` REPAIR PARTITION `p0`,`p1`;
-- no effect
ALTER TABLE `t1` ADD PARTITION (PARTITION `p5` VALUES LESS THAN (2010) COMMENT = 'APSTART '' APEND');
-- t1: add partitions p5 < 2010
ALTER TABLE `t1` ADD PARTITION (PARTITION `p5` VALUES LESS THAN (2010) COMMENT = 'xxx');
-- t1: add partitions p5 < 2010

# CREATE TABLE, TiCDC

create table t1 (id int, name varchar(20), primary key(`id`)) character set utf8;
-- create t1: id int not null, name varchar(20); key id
create table t2 (id int, name varchar(20) character set utf8, primary key(`id`)) character set latin1 collate latin1_bin;
-- create t2: id int not null, name varchar(20); key id
create table t1 (id int, name varchar(20), primary key(`id`)) character set utf8mb4 collate utf8mb4_general_ci;
-- create t1: id int not null, name varchar(20); key id
create table t2 (id int, name varchar(20) character set utf8mb4 collate utf8mb4_general_ci, primary key(`id`)) character set latin1 collate latin1_bin;
-- create t2: id int not null, name varchar(20); key id
create table t_9 (id int, name varchar(20) character set gbk, primary key(`id`)) character set utf8;
-- create t_9: id int not null, name varchar(20); key id
CREATE TABLE `t_2` ( `id` int NOT NULL AUTO_INCREMENT, `name` varchar(60), `num` int, `dt` datetime, PRIMARY KEY (id) ) character set utf8mb4 collate utf8mb4_general_ci;
-- create t_2: id int not null = AUTO_INCREMENT, name varchar(60), num int, dt datetime; key id
create table `t2` ( `id` int(11) NOT NULL AUTO_INCREMENT, PRIMARY KEY (`id`) ) collate utf8mb4_bin;
-- create t2: id int(11) not null = AUTO_INCREMENT; key id
CREATE TABLE t ( id BIGINT NOT NULL, k BIGINT NOT NULL, v VARCHAR(32), PRIMARY KEY (id) /*T![clustered_index] CLUSTERED */, KEY idx_k (k) );
-- create t: id bigint not null, k bigint not null, v varchar(32); key id
CREATE TABLE t ( id BIGINT NOT NULL, k BIGINT NOT NULL, v VARCHAR(32), PRIMARY KEY (id) NONCLUSTERED, KEY idx_k (k) );
-- create t: id bigint not null, k bigint not null, v varchar(32); key id
create table t1( id int primary key, c1 varchar(255) default "null", c2 varchar(255) default "NULL", c3 varchar(255) default null, c4 varbinary(100) DEFAULT b'01101110011101010110110001101100' );
-- create t1: id int not null, c1 varchar(255) = 'null', c2 varchar(255) = 'NULL', c3 varchar(255), c4 varbinary(100) = 'null'; key id
CREATE TABLE `column_is_null` ( `id` int(11) NOT NULL, `t` datetime DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (`id`) ) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
-- create column_is_null: id int(11) not null, t datetime = CURRENT_TIMESTAMP; key id
create table t4( id int primary key, name varchar(255), created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP COMMENT '创建时间', UNIQUE KEY `idx_name_id` (`name`,`id`) ) PARTITION BY RANGE (id) ( PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN (300), PARTITION p3 VALUES LESS THAN (400) );
-- create t4: id int not null, name varchar(255), created_at timestamp = CURRENT_TIMESTAMP; key id; unique idx_name_id (name id); range by id: p0 < 100, p1 < 200, p2 < 300, p3 < 400
CREATE TABLE multi_charset ( id INT, name varchar(128) CHARACTER SET gbk, country char(32) CHARACTER SET gbk, city varchar(64), description text CHARACTER SET gbk, image tinyblob, PRIMARY KEY (id) ) ENGINE = InnoDB CHARSET = utf8mb4;
-- create multi_charset: id int not null, name varchar(128), country char(32), city varchar(64), description text, image tinyblob; key id
CREATE TABLE binary_columns ( id INT AUTO_INCREMENT, c_binary binary(255), c_varbinary varbinary(255), t_tinyblob TINYBLOB, t_blob BLOB, t_mediumblob MEDIUMBLOB, t_longblob LONGBLOB, PRIMARY KEY (id) );
-- create binary_columns: id int not null = AUTO_INCREMENT, c_binary binary(255), c_varbinary varbinary(255), t_tinyblob tinyblob, t_blob blob, t_mediumblob mediumblob, t_longblob longblob; key id
create table tp_int ( id int auto_increment, c_tinyint tinyint null, c_smallint smallint null, c_mediumint mediumint null, c_int int null, c_bigint bigint null, constraint pk primary key (id) );
-- create tp_int: id int not null = AUTO_INCREMENT, c_tinyint tinyint, c_smallint smallint, c_mediumint mediumint, c_int int, c_bigint bigint; key id
create table tp_unsigned_int ( id int auto_increment, c_unsigned_tinyint tinyint unsigned null, c_unsigned_smallint smallint unsigned null, c_unsigned_mediumint mediumint unsigned null, c_unsigned_int int unsigned null, c_unsigned_bigint bigint unsigned null, constraint pk primary key (id) );
-- create tp_unsigned_int: id int not null = AUTO_INCREMENT, c_unsigned_tinyint tinyint unsigned, c_unsigned_smallint smallint unsigned, c_unsigned_mediumint mediumint unsigned, c_unsigned_int int unsigned, c_unsigned_bigint bigint unsigned; key id
create table tp_real ( id int auto_increment, c_float float null, c_double double null, c_decimal decimal null, c_decimal_2 decimal(10, 4) null, constraint pk primary key (id) );
-- create tp_real: id int not null = AUTO_INCREMENT, c_float float, c_double double, c_decimal decimal(10,0), c_decimal_2 decimal(10,4); key id
create table tp_unsigned_real ( id int auto_increment, c_unsigned_float float unsigned null, c_unsigned_double double unsigned null, c_unsigned_decimal decimal unsigned null, c_unsigned_decimal_2 decimal(10, 4) unsigned null, constraint pk primary key (id) );
-- create tp_unsigned_real: id int not null = AUTO_INCREMENT, c_unsigned_float float unsigned, c_unsigned_double double unsigned, c_unsigned_decimal decimal(10,0) unsigned, c_unsigned_decimal_2 decimal(10,4) unsigned; key id
create table tp_time ( id int auto_increment, c_date date null, c_datetime datetime null, c_timestamp timestamp null, c_time time null, c_year year null, constraint pk primary key (id) );
-- create tp_time: id int not null = AUTO_INCREMENT, c_date date, c_datetime datetime, c_timestamp timestamp, c_time time, c_year year; key id
create table tp_text ( id int auto_increment, c_tinytext tinytext null, c_text text null, c_mediumtext mediumtext null, c_longtext longtext null, constraint pk primary key (id) );
-- create tp_text: id int not null = AUTO_INCREMENT, c_tinytext tinytext, c_text text, c_mediumtext mediumtext, c_longtext longtext; key id
create table tp_blob ( id int auto_increment, c_tinyblob tinyblob null, c_blob blob null, c_mediumblob mediumblob null, c_longblob longblob null, constraint pk primary key (id) );
-- create tp_blob: id int not null = AUTO_INCREMENT, c_tinyblob tinyblob, c_blob blob, c_mediumblob mediumblob, c_longblob longblob; key id
create table tp_char_binary ( id int auto_increment, c_char char(16) null, c_varchar varchar(16) null, c_binary binary(16) null, c_varbinary varbinary(16) null, constraint pk primary key (id) );
-- create tp_char_binary: id int not null = AUTO_INCREMENT, c_char char(16), c_varchar varchar(16), c_binary binary(16), c_varbinary varbinary(16); key id
create table tp_other ( id int auto_increment, c_enum enum ('a','b','c') null, c_set set ('a','b','c') null, c_bit bit(64) null, c_json json null, constraint pk primary key (id) );
-- create tp_other: id int not null = AUTO_INCREMENT, c_enum enum('a','b','c'), c_set set('a','b','c'), c_bit bit(64), c_json json; key id
create table t1 (a int primary key) PARTITION BY RANGE ( a ) ( PARTITION p0 VALUES LESS THAN (6),PARTITION p1 VALUES LESS THAN (11),PARTITION p2 VALUES LESS THAN (21));
-- create t1: a int not null; key a; range by a: p0 < 6, p1 < 11, p2 < 21
CREATE TABLE t0 ( id INT, name varchar(128), country char(32), city varchar(64), description text, image tinyblob, PRIMARY KEY (id) ) ENGINE = InnoDB;
-- create t0: id int not null, name varchar(128), country char(32), city varchar(64), description text, image tinyblob; key id
CREATE TABLE t ( a varchar(20) not null PRIMARY KEY CLUSTERED, b int default 10 );
-- create t: a varchar(20) not null, b int = '10'; key a
CREATE TABLE t1 ( id VARCHAR(255), a INT, b CHAR(10), PRIMARY KEY(id, b), UNIQUE KEY(b), KEY(a) );
-- create t1: id varchar(255) not null, a int, b char(10) not null; key id b; unique b (b)
CREATE TABLE t2 ( id VARCHAR(255), a INT, b DECIMAL(5,2), PRIMARY KEY(id, a), KEY(id, a), UNIQUE KEY(id, a) );
-- create t2: id varchar(255) not null, a int not null, b decimal(5,2); key id a; unique id_2 (id a)
create table t8(a int, b varchar(255) as (concat(a, "test")) stored, primary key(b));
-- create t8: a int, b varchar(255) not null stored; key b
create table t12(name char(255) primary key, b int, c int, index idx(name), unique index uidx(name));
-- create t12: name char(255) not null, b int, c int; key name; unique uidx (name)
CREATE TABLE attributes_t2 (id INT PRIMARY KEY, name VARCHAR(50)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10000), PARTITION p1 VALUES LESS THAN (MAXVALUE));
-- create attributes_t2: id int not null, name varchar(50); key id; range by id: p0 < 10000, p1 < max
CREATE TABLE placement_t1 (id BIGINT NOT NULL PRIMARY KEY auto_increment, b varchar(255)) PLACEMENT POLICY=placement1;
-- create placement_t1: id bigint not null = AUTO_INCREMENT, b varchar(255); key id
CREATE TABLE `placement_t2` (id BIGINT NOT NULL PRIMARY KEY auto_increment) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin /*T![placement] PLACEMENT POLICY=`placement1` */;
-- create placement_t2: id bigint not null = AUTO_INCREMENT; key id
CREATE TABLE ttl_t1(id BIGINT NOT NULL PRIMARY KEY auto_increment, t datetime) TTL=`t` + INTERVAL 1 DAY;
-- create ttl_t1: id bigint not null = AUTO_INCREMENT, t datetime; key id
CREATE TABLE ttl_t2(id BIGINT NOT NULL PRIMARY KEY auto_increment, t datetime);
-- create ttl_t2: id bigint not null = AUTO_INCREMENT, t datetime; key id
CREATE TABLE ttl_t3(id BIGINT NOT NULL PRIMARY KEY auto_increment, t datetime) TTL=`t` + INTERVAL 1 DAY TTL_ENABLE='OFF';
-- create ttl_t3: id bigint not null = AUTO_INCREMENT, t datetime; key id
create table t1 ( id INT AUTO_INCREMENT PRIMARY KEY, val INT DEFAULT 0, col0 INT NOT NULL );
-- create t1: id int not null = AUTO_INCREMENT, val int = '0', col0 int not null; key id
CREATE TABLE ddl_manager.finish_mark ( id INT AUTO_INCREMENT PRIMARY KEY, val INT DEFAULT 0, col0 INT NOT NULL );
-- create ddl_manager.finish_mark: id int not null = AUTO_INCREMENT, val int = '0', col0 int not null; key id
CREATE TABLE dbz_254_binary_column_test ( id INT AUTO_INCREMENT NOT NULL, file_uuid BINARY(16), PRIMARY KEY (id) ) DEFAULT CHARSET=utf8;
-- create dbz_254_binary_column_test: id int not null = AUTO_INCREMENT, file_uuid binary(16); key id
CREATE TABLE dbz_1814_binary_mode_test ( id INT AUTO_INCREMENT NOT NULL, blob_col BLOB NOT NULL, tinyblob_col TINYBLOB NOT NULL, mediumblob_col MEDIUMBLOB NOT NULL, longblob_col LONGBLOB NOT NULL, binary_col BINARY(3) NOT NULL, varbinary_col varbinary(20) NOT NULL, PRIMARY KEY (id) ) DEFAULT CHARSET=utf8;
-- create dbz_1814_binary_mode_test: id int not null = AUTO_INCREMENT, blob_col blob not null, tinyblob_col tinyblob not null, mediumblob_col mediumblob not null, longblob_col longblob not null, binary_col binary(3) not null, varbinary_col varbinary(20) not null; key id
CREATE TABLE binary_field ( id INT AUTO_INCREMENT PRIMARY KEY, now_time TIME, now_date DATE, now_date_time DATETIME, now_time_stamp TIMESTAMP ) ENGINE = innodb AUTO_INCREMENT = 1 DEFAULT CHARSET = utf8;
-- create binary_field: id int not null = AUTO_INCREMENT, now_time time, now_date date, now_date_time datetime, now_time_stamp timestamp; key id
CREATE TABLE products ( id INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255) NOT NULL, description VARCHAR(512), weight FLOAT );
-- create products: id int not null = AUTO_INCREMENT, name varchar(255) not null, description varchar(512), weight float; key id
CREATE TABLE products_on_hand ( product_id INTEGER NOT NULL PRIMARY KEY, quantity INTEGER NOT NULL, FOREIGN KEY (product_id) REFERENCES products(id) );
-- create products_on_hand: product_id int not null, quantity int not null; key product_id
CREATE TABLE customers ( id INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY, first_name VARCHAR(255) NOT NULL, last_name VARCHAR(255) NOT NULL, email VARCHAR(255) NOT NULL UNIQUE KEY ) AUTO_INCREMENT=1001;
-- create customers: id int not null = AUTO_INCREMENT, first_name varchar(255) not null, last_name varchar(255) not null, email varchar(255) not null; key id; unique email (email)
CREATE TABLE orders ( order_number INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY, order_date DATE NOT NULL, purchaser INTEGER NOT NULL, quantity INTEGER NOT NULL, product_id INTEGER NOT NULL, FOREIGN KEY order_customer (purchaser) REFERENCES customers(id), FOREIGN KEY ordered_product (product_id) REFERENCES products(id) ) AUTO_INCREMENT = 10001;
-- create orders: order_number int not null = AUTO_INCREMENT, order_date date not null, purchaser int not null, quantity int not null, product_id int not null; key order_number
CREATE TABLE Products ( PRIMARY KEY (id), id INTEGER NOT NULL AUTO_INCREMENT, name VARCHAR(255) NOT NULL, description VARCHAR(512), weight FLOAT );
-- create Products: id int not null = AUTO_INCREMENT, name varchar(255) not null, description varchar(512), weight float; key id
CREATE TABLE dbz_1194_datetime_key_test ( id INT AUTO_INCREMENT NOT NULL, dtval DATETIME NOT NULL, dval DATE NOT NULL, tval TIME NOT NULL, PRIMARY KEY (id, dtval, dval, tval) ) DEFAULT CHARSET=utf8;
-- create dbz_1194_datetime_key_test: id int not null = AUTO_INCREMENT, dtval datetime not null, dval date not null, tval time not null; key id dtval dval tval
CREATE TABLE dbz_751_decimal_column_test ( id INT AUTO_INCREMENT NOT NULL, rating1 DECIMAL, rating2 DECIMAL(8, 4), rating3 DECIMAL(7), rating4 DECIMAL(6, 0), PRIMARY KEY (id) ) DEFAULT CHARSET=utf8;
-- create dbz_751_decimal_column_test: id int not null = AUTO_INCREMENT, rating1 decimal(10,0), rating2 decimal(8,4), rating3 decimal(7,0), rating4 decimal(6,0); key id
CREATE TABLE `DBZ730` ( id INT NOT NULL PRIMARY KEY AUTO_INCREMENT, A NUMERIC(3, 2) NOT NULL DEFAULT 1.23, B DECIMAL(4, 3) NOT NULL DEFAULT 2.321, C NUMERIC(7, 5) NULL DEFAULT '12.678', D NUMERIC(7, 5) NULL DEFAULT '15.28', E DECIMAL(65, 18) NULL DEFAULT '0.000000000000000000' ) ENGINE=InnoDB AUTO_INCREMENT=15851 DEFAULT CHARSET=utf8;
-- create DBZ730: id int not null = AUTO_INCREMENT, A decimal(3,2) not null = '1.23', B decimal(4,3) not null = '2.321', C decimal(7,5) = '12.678', D decimal(7,5) = '15.28', E decimal(65,18) = '0.000000000000000000'; key id
CREATE TABLE UNSIGNED_TINYINT_TABLE ( id int PRIMARY KEY, A TINYINT UNSIGNED NULL DEFAULT 0, B TINYINT UNSIGNED NULL DEFAULT '10', C TINYINT UNSIGNED NULL, D TINYINT UNSIGNED NOT NULL, E TINYINT UNSIGNED NOT NULL DEFAULT 0, F TINYINT UNSIGNED NOT NULL DEFAULT '0', G TINYINT UNSIGNED NULL DEFAULT '100' );
-- create UNSIGNED_TINYINT_TABLE: id int not null, A tinyint unsigned = '0', B tinyint unsigned = '10', C tinyint unsigned, D tinyint unsigned not null, E tinyint unsigned not null = '0', F tinyint unsigned not null = '0', G tinyint unsigned = '100'; key id
CREATE TABLE UNSIGNED_INT_TABLE ( id int PRIMARY KEY, A INT UNSIGNED NULL DEFAULT 0, B INT UNSIGNED NULL DEFAULT '10', C INT UNSIGNED NULL, D INT UNSIGNED NOT NULL, E INT UNSIGNED NOT NULL DEFAULT 0, F INT UNSIGNED NOT NULL DEFAULT '0', G INT UNSIGNED NULL DEFAULT '100' );
-- create UNSIGNED_INT_TABLE: id int not null, A int unsigned = '0', B int unsigned = '10', C int unsigned, D int unsigned not null, E int unsigned not null = '0', F int unsigned not null = '0', G int unsigned = '100'; key id
CREATE TABLE UNSIGNED_BIGINT_TABLE ( id int PRIMARY KEY, A BIGINT UNSIGNED NULL DEFAULT 0, B BIGINT UNSIGNED NULL DEFAULT '10', C BIGINT UNSIGNED NULL, D BIGINT UNSIGNED NOT NULL, E BIGINT UNSIGNED NOT NULL DEFAULT 0, F BIGINT UNSIGNED NOT NULL DEFAULT '0', G BIGINT UNSIGNED NULL DEFAULT '100' );
-- create UNSIGNED_BIGINT_TABLE: id int not null, A bigint unsigned = '0', B bigint unsigned = '10', C bigint unsigned, D bigint unsigned not null, E bigint unsigned not null = '0', F bigint unsigned not null = '0', G bigint unsigned = '100'; key id
CREATE TABLE STRING_TABLE ( id int PRIMARY KEY, A CHAR(1) NULL DEFAULT 'A', B CHAR(1) NULL DEFAULT 'b', C VARCHAR(10) NULL DEFAULT 'CC', F CHAR(1) DEFAULT NULL, G VARCHAR(10) DEFAULT NULL, I VARCHAR(10) NULL DEFAULT '100' );
-- create STRING_TABLE: id int not null, A char(1) = 'A', B char(1) = 'b', C varchar(10) = 'CC', F char(1), G varchar(10), I varchar(10) = '100'; key id
CREATE TABLE BIT_TABLE ( id int PRIMARY KEY, A BIT(1) NULL DEFAULT NULL, B BIT(1) DEFAULT 0, C BIT(1) DEFAULT 1, D BIT(1) DEFAULT b'0', E BIT(1) DEFAULT b'1', H BIT(10) DEFAULT b'0101000010', I BIT(10) DEFAULT NULL, J BIT(25) DEFAULT b'0000000000000000100001111', K BIT(25) DEFAULT b'0000000010110000100001111' );
-- create BIT_TABLE: id int not null, A bit(1), B bit(1) = '0', C bit(1) = '1', D bit(1) = '0', E bit(1) = '1', H bit(10) = '322', I bit(10), J bit(25) = '271', K bit(25) = '90383'; key id
CREATE TABLE NUMBER_TABLE ( id int PRIMARY KEY, A TINYINT NULL DEFAULT 10, B SMALLINT NOT NULL DEFAULT '5', C INTEGER NOT NULL DEFAULT 0, D BIGINT NOT NULL DEFAULT 20, E INT NULL DEFAULT NULL, F INT NULL DEFAULT 30 );
-- create NUMBER_TABLE: id int not null, A tinyint = '10', B smallint not null = '5', C int not null = '0', D bigint not null = '20', E int, F int = '30'; key id
CREATE TABLE FlOAT_DOUBLE_TABLE ( id int PRIMARY KEY, F FLOAT NULL DEFAULT 0, G DOUBLE NOT NULL DEFAULT 1.1, H DOUBLE NULL DEFAULT 3.3 );
-- create FlOAT_DOUBLE_TABLE: id int not null, F float = '0', G double not null = '1.1', H double = '3.3'; key id
CREATE TABLE REAL_TABLE ( id int PRIMARY KEY, A REAL NOT NULL DEFAULT 1, B REAL NULL DEFAULT NULL, C REAL NULL DEFAULT 3 );
-- create REAL_TABLE: id int not null, A double not null = '1', B double, C double = '3'; key id
CREATE TABLE NUMERIC_DECIMAL_TABLE ( id int PRIMARY KEY, A NUMERIC(3, 2) NOT NULL DEFAULT 1.23, B DECIMAL(4, 3) NOT NULL DEFAULT 2.321, C NUMERIC(7, 5) NULL DEFAULT '12.678', D NUMERIC(7, 5) NULL DEFAULT '15.28' );
-- create NUMERIC_DECIMAL_TABLE: id int not null, A decimal(3,2) not null = '1.23', B decimal(4,3) not null = '2.321', C decimal(7,5) = '12.678', D decimal(7,5) = '15.28'; key id
CREATE TABLE DBZ_771_CUSTOMERS ( id INTEGER NOT NULL PRIMARY KEY, CUSTOMER_TYPE ENUM ('b2c','b2b') NOT NULL default 'b2c' );
-- create DBZ_771_CUSTOMERS: id int not null, CUSTOMER_TYPE enum('b2c','b2b') not null = 'b2c'; key id
CREATE TABLE dbz_751_numeric_column_test ( id INT AUTO_INCREMENT NOT NULL, rating1 NUMERIC, rating2 NUMERIC(8, 4), rating3 NUMERIC(7), rating4 NUMERIC(6, 0), PRIMARY KEY (id) ) DEFAULT CHARSET=utf8;
-- create dbz_751_numeric_column_test: id int not null = AUTO_INCREMENT, rating1 decimal(10,0), rating2 decimal(8,4), rating3 decimal(7,0), rating4 decimal(6,0); key id
CREATE TABLE person ( name VARCHAR(255) primary key, birthdate DATE NULL, age INTEGER NULL DEFAULT 10, salary DECIMAL(5,2), bitStr BIT(18) );
-- create person: name varchar(255) not null, birthdate date, age int = '10', salary decimal(5,2), bitStr bit(18); key name
CREATE TABLE product ( id INT NOT NULL AUTO_INCREMENT, createdByDate DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, modifiedDate DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY(id) );
-- create product: id int not null = AUTO_INCREMENT, createdByDate datetime not null = CURRENT_TIMESTAMP, modifiedDate datetime not null = CURRENT_TIMESTAMP; key id
CREATE TABLE purchased ( purchaser VARCHAR(255) NOT NULL, productId INT NOT NULL, purchaseDate DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY(productId,purchaser) );
-- create purchased: purchaser varchar(255) not null, productId int not null, purchaseDate datetime not null = CURRENT_TIMESTAMP; key productId purchaser
CREATE TABLE `REAL_TEST` ( `id` INT NOT NULL AUTO_INCREMENT, `r1` real default 1.25, PRIMARY KEY (`ID`) ) ENGINE=InnoDB AUTO_INCREMENT=1 DEFAULT CHARSET=utf8mb4;
-- create REAL_TEST: id int not null = AUTO_INCREMENT, r1 double = '1.25'; key id
CREATE TABLE t1464075356413_testtable6 ( pk_column int auto_increment NOT NULL, varbinary_col varbinary(20) NOT NULL, PRIMARY KEY(pk_column) );
-- create t1464075356413_testtable6: pk_column int not null = AUTO_INCREMENT, varbinary_col varbinary(20) not null; key pk_column
CREATE TABLE dbz_85_fractest ( c1 DATE, c2 TIME(2), c3 DATETIME(2), c4 TIMESTAMP(2), PK INT PRIMARY KEY );
-- create dbz_85_fractest: c1 date, c2 time(2), c3 datetime(2), c4 timestamp(2), PK int not null; key PK
CREATE TABLE dbz_100_enumsettest ( c1 enUM('a','b','c'), c2 Set('a','b','c'), PK INT PRIMARY KEY );
-- create dbz_100_enumsettest: c1 enum('a','b','c'), c2 set('a','b','c'), PK int not null; key PK
CREATE TABLE dbz_102_charsettest ( id INT(11) NOT NULL AUTO_INCREMENT, text VARCHAR(255) DEFAULT NULL, PRIMARY KEY (`id`) ) ENGINE=InnoDB AUTO_INCREMENT=2001 DEFAULT CHARSET=utf8;
-- create dbz_102_charsettest: id int(11) not null = AUTO_INCREMENT, text varchar(255); key id
CREATE TABLE dbz_123_bitvaluetest ( c1 BIT, c2 BIT(2), c3 BIT(8) NOT NULL, c4 BIT(64), PK INT PRIMARY KEY );
-- create dbz_123_bitvaluetest: c1 bit(1), c2 bit(2), c3 bit(8) not null, c4 bit(64), PK int not null; key PK
CREATE TABLE connector_test.customers ( id INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY, first_name VARCHAR(255) NOT NULL, last_name VARCHAR(255) NOT NULL, email VARCHAR(255) NOT NULL UNIQUE KEY ) AUTO_INCREMENT=1001;
-- create connector_test.customers: id int not null = AUTO_INCREMENT, first_name varchar(255) not null, last_name varchar(255) not null, email varchar(255) not null; key id; unique email (email)

# CREATE TABLE, TiDB's parser

CREATE TABLE `t`.`a` AS TABLE `t`.`b`;
-- unsupported: it takes columns or rows from a query
CREATE TABLE `ta` AS TABLE `tb`;
-- unsupported: it takes columns or rows from a query
CREATE TABLE `ta` (`x` INT) AS TABLE `tb`;
-- unsupported: it takes columns or rows from a query
CREATE TABLE `ta` AS VALUES ROW(1);
-- unsupported: it takes columns or rows from a query
CREATE TABLE `CONFIG` (`a` INT);
-- create CONFIG: a int; no key
CREATE TABLE `t` (`c1` TIME(2),`c2` DATETIME(2),`c3` TIMESTAMP(2));
-- create t: c1 time(2), c2 datetime(2), c3 timestamp(2); no key
CREATE TABLE `MergeContextTest$Simple` (`value` INT NOT NULL,PRIMARY KEY(`value`));
-- create MergeContextTest$Simple: value int not null; key value
CREATE TABLE `foo` (`a` VARCHAR(50),`b` INT);
-- create foo: a varchar(50), b int; no key
CREATE TABLE `foo` (`a` TINYINT UNSIGNED);
-- create foo: a tinyint unsigned; no key
CREATE TABLE `foo` (`a` SMALLINT UNSIGNED,`b` INT UNSIGNED);
-- create foo: a smallint unsigned, b int unsigned; no key
CREATE TABLE `foo` (`a` BIGINT UNSIGNED,`b` TINYINT(1));
-- create foo: a bigint unsigned, b tinyint(1); no key
CREATE TABLE `foo` (`name` CHAR(50) BINARY);
-- create foo: name char(50); no key
CREATE TABLE `foo` (`name` CHAR(50) COLLATE utf8_bin);
-- create foo: name char(50); no key
CREATE TABLE `foo` (`id` VARCHAR(50) COLLATE utf8_bin);
-- create foo: id varchar(50); no key
CREATE TABLE `foo` (`name` CHAR(50) CHARACTER SET UTF8);
-- create foo: name char(50); no key
CREATE TABLE `foo` (`name` CHAR(50) BINARY CHARACTER SET UTF8);
-- create foo: name char(50); no key
CREATE TABLE `foo` (`name` CHAR(50) BINARY CHARACTER SET UTF8 COLLATE utf8_bin);
-- create foo: name char(50); no key
CREATE TABLE `foo` (`name` CHAR(50) CHARACTER SET UTF8 COLLATE utf8_bin COLLATE ascii_bin);
-- create foo: name char(50); no key
CREATE TABLE `foo` (`name` CHAR(50) COLLATE ascii_bin COLLATE latin1_bin);
-- create foo: name char(50); no key
CREATE TABLE `foo` (`name` CHAR(50) COLLATE ascii_bin PRIMARY KEY COLLATE latin1_bin);
-- create foo: name char(50) not null; key name
CREATE TEMPORARY TABLE `t` LIKE `t1`;
-- no effect
CREATE TEMPORARY TABLE `t` (`a` INT,`b` VARCHAR(255));
-- no effect
CREATE TABLE `t` (`c` INT) AVG_ROW_LENGTH = 3;
-- create t: c int; no key
CREATE TABLE `t` (`c` INT) COMPRESSION = 'NONE';
-- create t: c int; no key
CREATE TABLE `t` (`c` INT) ROW_FORMAT = DEFAULT;
-- create t: c int; no key
CREATE TABLE `t` (`c` INT) PACK_KEYS = DEFAULT /* TableOptionPackKeys is not supported */;
-- create t: c int; no key
CREATE TABLE `t` (`c` INT) SECONDARY_ENGINE = NULL;
-- create t: c int; no key
CREATE TABLE `testTableCompression` (`c` VARCHAR(15000)) COMPRESSION = 'ZLIB';
-- create testTableCompression: c varchar(15000); no key
CREATE TABLE `t1` (`c1` INT) DEFAULT COLLATE = BINARY;
-- create t1: c1 int; no key; bytes
CREATE TABLE `t1` (`c1` INT) DEFAULT CHARACTER SET = BINARY DEFAULT COLLATE = BINARY;
-- create t1: c1 int; no key; bytes
CREATE TABLE `t` (`id` INT) ENGINE = INNDB PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10),PARTITION `p1` VALUES LESS THAN (20));
-- create t: id int; no key; range by id: p0 < 10, p1 < 20
CREATE TABLE `t` (`c` INT) PARTITION BY HASH (`c`) PARTITIONS 32;
-- create t: c int; no key; hash by c: p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, p17, p18, p19, p20, p21, p22, p23, p24, p25, p26, p27, p28, p29, p30, p31
CREATE TABLE `md_product_shop` (`shopCode` VARCHAR(4) DEFAULT NULL COMMENT '地点') ENGINE = InnoDB DEFAULT CHARACTER SET = UTF8MB4 PARTITION BY KEY (`shopCode`) PARTITIONS 19;
-- create md_product_shop: shopCode varchar(4); no key
CREATE TABLE `t` (`c` INT) PLACEMENT POLICY = `ww`;
-- create t: c int; no key
CREATE TABLE `m` (`c` INT) PARTITION BY RANGE (`c`) (PARTITION `p1` VALUES LESS THAN (200) PLACEMENT POLICY = `ww`);
-- create m: c int; no key; range by c: p1 < 200
CREATE TABLE `t` (`c1` TINYINT(1),`c2` TINYINT(1),CHECK(`c1` IN (0,1)) NOT ENFORCED,CHECK(`c2` IN (0,1)) ENFORCED);
-- create t: c1 tinyint(1), c2 tinyint(1); no key
CREATE TABLE `Customer` (`SD` INT CHECK(`SD`>0) ENFORCED,`First_Name` VARCHAR(30));
-- create Customer: SD int, First_Name varchar(30); no key
CREATE TABLE `Customer` (`SD` INT CHECK(`SD`>0) NOT ENFORCED,`SS` VARCHAR(30) CHECK(`ss`=_UTF8MB4'test') ENFORCED);
-- create Customer: SD int, SS varchar(30); no key
CREATE TABLE `Customer` (`SD` INT CHECK(`SD`>0) ENFORCED NOT NULL,`First_Name` VARCHAR(30) COMMENT 'string' NOT NULL);
-- create Customer: SD int not null, First_Name varchar(30) not null; no key
CREATE TABLE `Customer` (`SD` INT COMMENT 'string' CHECK(`SD`>0) ENFORCED NOT NULL);
-- create Customer: SD int not null; no key
CREATE TABLE `t` (`c` INT PRIMARY KEY);
-- create t: c int not null; key c
CREATE TABLE `t` (`a` DECIMAL(20,0),`b` DECIMAL(30),`c` FLOAT(25,0));
-- create t: a decimal(20,0), b decimal(30,0), c float(25,0); no key
CREATE TABLE `t` (`c` INT,INDEX `ci`(`c`) USING BTREE COMMENT '123');
-- create t: c int; no key
CREATE TABLE `sbtest` (`id` INT UNSIGNED NOT NULL AUTO_INCREMENT,`k` INT UNSIGNED DEFAULT _UTF8MB4'0' NOT NULL,`c` CHAR(120) DEFAULT _UTF8MB4'' NOT NULL,`pad` CHAR(60) DEFAULT _UTF8MB4'' NOT NULL,PRIMARY KEY(`id`));
-- create sbtest: id int unsigned not null = AUTO_INCREMENT, k int unsigned not null = '0', c char(120) not null = '', pad char(60) not null = ''; key id
CREATE TABLE `test` (`create_date` TIMESTAMP NOT NULL COMMENT '创建日期 create date' DEFAULT CURRENT_TIMESTAMP());
-- create test: create_date timestamp not null = CURRENT_TIMESTAMP; no key
CREATE TABLE `ts` (`t` INT,`v` TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3));
-- create ts: t int, v timestamp(3) = CURRENT_TIMESTAMP; no key
CREATE TABLE IF NOT EXISTS `t` (`id` INT NOT NULL AUTO_INCREMENT COMMENT '消息ID',PRIMARY KEY `pk_id`(`id`));
-- create t: id int not null = AUTO_INCREMENT; key id
CREATE TABLE `a` (`id` INT REFERENCES `a`(`id`) ON DELETE NO ACTION);
-- create a: id int; no key
CREATE TABLE `a` (`id` INT REFERENCES `a`(`id`) ON UPDATE SET DEFAULT);
-- create a: id int; no key
CREATE TABLE `a` (`id` INT REFERENCES `a`(`id`) ON DELETE SET NULL ON UPDATE CASCADE);
-- create a: id int; no key
CREATE TABLE `a` (`id` INT REFERENCES `a`(`id`) ON DELETE RESTRICT ON UPDATE SET DEFAULT);
-- create a: id int; no key
CREATE TABLE IF NOT EXISTS `a` LIKE `b`;
-- create a like b
CREATE TABLE `a` AS SELECT * FROM `b`;
-- unsupported: it takes columns or rows from a query
CREATE TABLE `a` (`m` INT,`n` DATETIME) AS SELECT * FROM `b`;
-- unsupported: it takes columns or rows from a query
CREATE TABLE `a` (UNIQUE(`n`)) AS SELECT `n` FROM `b`;
-- unsupported: it takes columns or rows from a query
CREATE TABLE `a` IGNORE AS SELECT `n` FROM `b`;
-- unsupported: it takes columns or rows from a query
CREATE TABLE `a` (`m` INT) REPLACE AS (SELECT `n` AS `m` FROM `b` UNION SELECT `n`+1 AS `m` FROM `c` GROUP BY 1 LIMIT 2);
-- unsupported: it takes columns or rows from a query
CREATE TABLE `a`;
-- unsupported: it takes columns or rows from a query
CREATE TABLE `t` (`a` TIMESTAMP DEFAULT CURRENT_TIMESTAMP());
-- create t: a timestamp = CURRENT_TIMESTAMP; no key
CREATE TABLE `t` (`a` TIMESTAMP DEFAULT CURRENT_TIMESTAMP() ON UPDATE CURRENT_TIMESTAMP());
-- create t: a timestamp = CURRENT_TIMESTAMP; no key
CREATE TABLE `t` (`c` TEXT) DEFAULT CHARACTER SET = UTF8 DEFAULT COLLATE = UTF8_GENERAL_CI;
-- create t: c text; no key
CREATE TABLE `t` (`c` TEXT) SHARD_ROW_ID_BITS = 1;
-- create t: c text; no key
CREATE TABLE `t` (`c` TEXT) SHARD_ROW_ID_BITS = 1 PRE_SPLIT_REGIONS = 1;
-- create t: c text; no key
CREATE TABLE `a` (`process` DOUBLE);
-- create a: process double; no key
CREATE TABLE `t` (`a` TINYINT,`b` SMALLINT,`c` MEDIUMINT,`d` INT,`e` BIGINT);
-- create t: a tinyint, b smallint, c mediumint, d int, e bigint; no key
CREATE TABLE `t` (`lv` MEDIUMTEXT NULL);
-- create t: lv mediumtext; no key
CREATE TABLE `cdp_test`.`test2-1` (`id` INT(11) DEFAULT NULL,INDEX(`id`));
-- create cdp_test.test2-1: id int(11); no key
CREATE TABLE `miantiao` (`扁豆焖面` INT(11));
-- create miantiao: 扁豆焖面 int(11); no key
CREATE TABLE `bar` (`m` INT) AS SELECT `n` FROM `foo`;
-- unsupported: it takes columns or rows from a query
CREATE TABLE `t` (`a` BIGINT,`b` BIGINT GENERATED ALWAYS AS(`a`+1) VIRTUAL NOT NULL);
-- create t: a bigint, b bigint not null virtual; no key
CREATE TABLE `t` (`a` BIGINT,`b` BIGINT GENERATED ALWAYS AS(`a`+1) VIRTUAL NOT NULL COMMENT 'ttt');
-- create t: a bigint, b bigint not null virtual; no key
CREATE TABLE `t` (`a` INT COLUMN_FORMAT DEFAULT);
-- create t: a int; no key
CREATE TABLE `t` (`a` VARCHAR(1));
-- create t: a varchar(1); no key
CREATE TABLE `t` (`a` VARCHAR(1),`b` VARCHAR(255));
-- create t: a varchar(1), b varchar(255); no key
CREATE TABLE `t` (`a` CHAR);
-- create t: a char(1); no key


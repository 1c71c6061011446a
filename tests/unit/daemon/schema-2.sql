-- What the second version made of a store of the first, schema-1.sql; never changed.
BEGIN IMMEDIATE;
CREATE TABLE device (
  job        TEXT NOT NULL,
  device     TEXT NOT NULL,
  node       TEXT NOT NULL,
  slot       INTEGER NOT NULL,
  slow       INTEGER NOT NULL CHECK (slow IN (0, 1)),
  slowdown   REAL NOT NULL,
  since_s    REAL NOT NULL,
  until_s    REAL NOT NULL,
  episodes   INTEGER NOT NULL,
  slow_s     REAL NOT NULL,
  planned_at REAL NOT NULL,
  wall_ns    INTEGER NOT NULL,
  PRIMARY KEY (job, device)
) STRICT;
CREATE TABLE learnt (
  job            TEXT PRIMARY KEY NOT NULL,
  healthy_step_s REAL NOT NULL,
  healthy_epoch  INTEGER NOT NULL,
  calibration    REAL NOT NULL,
  wall_ns        INTEGER NOT NULL
) STRICT;
CREATE TABLE automatic_switch (
  job           TEXT NOT NULL,
  epoch         INTEGER NOT NULL,
  time_s        REAL NOT NULL,
  nodes         TEXT NOT NULL,
  rests_until_s REAL NOT NULL,
  wall_ns       INTEGER NOT NULL,
  PRIMARY KEY (job, epoch)
) STRICT;
ALTER TABLE node_state ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1));
ALTER TABLE node_state ADD COLUMN pin_reason TEXT NOT NULL DEFAULT '';
PRAGMA user_version = 2;
COMMIT;
UPDATE node_state SET pinned = 0;
INSERT INTO node_state VALUES ('node-2', 0, '', 5, 1, 'profiling');
INSERT INTO device VALUES ('gpt-tiny', 'node-1/0', 'node-1', 0, 1, 1.5, 10, 0, 1, 0, 1.5, 5);
INSERT INTO learnt VALUES ('gpt-tiny', 0.02, 1, 1.1, 5);
INSERT INTO automatic_switch VALUES ('gpt-tiny', 1, 20, 'node-1', 0, 5);

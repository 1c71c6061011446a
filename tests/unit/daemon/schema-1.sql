-- A store as the first version made it; never changed.
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN IMMEDIATE;
CREATE TABLE meta (
  key   TEXT PRIMARY KEY NOT NULL,
  value INTEGER NOT NULL
) STRICT;
INSERT INTO meta VALUES ('term', 0);
CREATE TABLE plan (
  job              TEXT NOT NULL,
  epoch            INTEGER NOT NULL,
  parent           INTEGER NOT NULL,
  status           TEXT NOT NULL CHECK (status IN ('proposed', 'active', 'superseded', 'aborted')),
  trigger          TEXT NOT NULL,
  created_ns       INTEGER NOT NULL,
  predicted_step_s REAL NOT NULL,
  body             TEXT NOT NULL,
  PRIMARY KEY (job, epoch)
) STRICT;
CREATE TABLE decision (
  job         TEXT NOT NULL,
  decision    INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  reason_code TEXT NOT NULL,
  sentence    TEXT NOT NULL,
  evidence    TEXT NOT NULL,
  wall_ns     INTEGER NOT NULL,
  PRIMARY KEY (job, decision)
) STRICT;
CREATE TABLE switch (
  job        TEXT NOT NULL,
  to_epoch   INTEGER NOT NULL,
  from_epoch INTEGER NOT NULL,
  state      TEXT NOT NULL CHECK (state IN ('running', 'commit_decided', 'done', 'aborted')),
  reason     TEXT NOT NULL,
  wall_ns    INTEGER NOT NULL,
  PRIMARY KEY (job, to_epoch)
) STRICT;
CREATE TABLE event (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  job      TEXT NOT NULL,
  kind     TEXT NOT NULL,
  node     TEXT NOT NULL,
  sentence TEXT NOT NULL,
  evidence TEXT NOT NULL,
  wall_ns  INTEGER NOT NULL
) STRICT;
CREATE TABLE operator_action (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  who     TEXT NOT NULL,
  action  TEXT NOT NULL,
  reason  TEXT NOT NULL,
  outcome TEXT NOT NULL,
  wall_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE node_state (
  node    TEXT PRIMARY KEY NOT NULL,
  drained INTEGER NOT NULL CHECK (drained IN (0, 1)),
  reason  TEXT NOT NULL,
  wall_ns INTEGER NOT NULL
) STRICT;
PRAGMA application_id = 1413566547;
PRAGMA user_version = 1;
COMMIT;
UPDATE meta SET value = 7 WHERE key = 'term';
INSERT INTO decision VALUES ('gpt-tiny', 3, 1, 'first_plan', 'a sentence', '{"solve_s": 0.1}', 5);
INSERT INTO switch VALUES ('gpt-tiny', 2, 1, 'aborted', 'slow node node-1', 5);
INSERT INTO event VALUES (41, 'gpt-tiny', 'verdict', 'node-1', 'it is slow', '{"slowdown": 1.5}', 5);
INSERT INTO operator_action VALUES (1, 'uid 0 (root)', 'node drain node-1', 'fan', 'accepted', 5);
INSERT INTO node_state (node, drained, reason, wall_ns) VALUES ('node-1', 1, 'fan', 5);

-- What the third version added to a store of the second, schema-2.sql; never changed.
CREATE TABLE slow_link (
  job         TEXT NOT NULL,
  source      TEXT NOT NULL,
  destination TEXT NOT NULL,
  part        TEXT NOT NULL,
  slowdown    REAL NOT NULL,
  before_s    REAL NOT NULL,
  since_s     REAL NOT NULL,
  planned     INTEGER NOT NULL CHECK (planned IN (0, 1)),
  wall_ns     INTEGER NOT NULL,
  PRIMARY KEY (job, source, destination)
) STRICT;
CREATE TABLE loss (
  job     TEXT PRIMARY KEY NOT NULL,
  lost_s  REAL NOT NULL,
  until_s REAL NOT NULL,
  wall_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE trial (
  job            TEXT PRIMARY KEY NOT NULL,
  epoch          INTEGER NOT NULL,
  decision       INTEGER NOT NULL,
  nodes          TEXT NOT NULL,
  before_s       REAL NOT NULL,
  before_model_s REAL NOT NULL,
  may_roll_back  INTEGER NOT NULL CHECK (may_roll_back IN (0, 1)),
  open           INTEGER NOT NULL CHECK (open IN (0, 1)),
  wall_ns        INTEGER NOT NULL
) STRICT;
PRAGMA user_version = 3;
INSERT INTO slow_link VALUES ('gpt-tiny', 'node-1', 'node-2', 'send', 3, 5e-11, 60, 1, 5);
INSERT INTO loss VALUES ('gpt-tiny', 40, 105, 5);

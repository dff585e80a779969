-- Schema 6 of the runs database. Names: units as in the code (_ns, _bytes, _ratio); trace tables use the column
-- names of Nsight Systems' SQLite export where both have the thing. Times of day are UTC text, ISO 8601 with milliseconds.
-- Booleans are 0 or 1. A REAL that is not a number (a diverged loss) is NULL.

CREATE TABLE model (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  json TEXT NOT NULL,
  UNIQUE (name, json)
) STRICT;

CREATE TABLE hardware (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  json TEXT NOT NULL,
  UNIQUE (name, json)
) STRICT;

CREATE TABLE sweep (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  config_hash TEXT NOT NULL UNIQUE,
  config_json TEXT NOT NULL,
  contract_json TEXT NOT NULL,
  model_id INTEGER NOT NULL REFERENCES model(id),
  hardware_id INTEGER NOT NULL REFERENCES hardware(id),
  status TEXT NOT NULL CHECK (status IN ('running', 'done', 'failed', 'interrupted')),
  started_at TEXT NOT NULL,
  ended_at TEXT,
  command_line TEXT NOT NULL,
  tool_version TEXT NOT NULL,
  tool_commit TEXT NOT NULL,
  winner_trial INTEGER REFERENCES trial(id) ON DELETE SET NULL,    -- the best so far; of a sweep that is done, its answer
  baseline_trial INTEGER REFERENCES trial(id) ON DELETE SET NULL,  -- the user's starting configuration
  first_fit_trial INTEGER REFERENCES trial(id) ON DELETE SET NULL  -- the first configuration that fitted and ran
) STRICT;

-- A machine with a build on it, in which a sweep has run; the latest has the largest ordinal. Never deleted by resuming:
-- measurements refer to it.
CREATE TABLE environment (
  id INTEGER PRIMARY KEY,
  sweep_id INTEGER NOT NULL REFERENCES sweep(id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  started_at TEXT NOT NULL,
  UNIQUE (sweep_id, ordinal)
) STRICT;

-- What it is: host, cpu, compiler, ... "host", "commit" and "binary" (a digest of moetune-rank) say whether measurements of
-- two of them may be compared.
CREATE TABLE environment_value (
  environment_id INTEGER NOT NULL REFERENCES environment(id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (environment_id, ordinal)
) STRICT, WITHOUT ROWID;

-- One configuration. Its numbers are those of its measurements that count; steps, operations, metrics, memory and traces
-- below are those of the first of them.
CREATE TABLE trial (
  id INTEGER PRIMARY KEY,
  sweep_id INTEGER NOT NULL REFERENCES sweep(id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  spec_hash TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('running', 'ok', 'invalid', 'pruned', 'oom', 'wrong', 'failed', 'crashed',
                                         'hung', 'interrupted')),
  reason TEXT NOT NULL DEFAULT '',
  phase TEXT NOT NULL CHECK (phase IN ('contract', 'fit', 'scale', 'profile', 'retune', 'validate')),
  spec_json TEXT NOT NULL,
  wall TEXT CHECK (wall IN ('communication', 'host', 'pipeline', 'imbalance', 'memory', 'compute', 'unknown')),
  predicted_peak_bytes INTEGER,
  peak_bytes INTEGER,
  predicted_step_ns INTEGER,
  step_ns INTEGER,       -- median of the timed, untraced steps
  step_ns_low INTEGER,   -- confidence interval of the median
  step_ns_high INTEGER,
  tokens_per_s REAL,
  loss_final REAL,       -- nats per token
  started_at TEXT NOT NULL,
  ended_at TEXT,
  duration_ns INTEGER,   -- real time from start to commit
  lease_pid INTEGER,
  lease_host TEXT,
  lease_start INTEGER,   -- start time of the holder, clock ticks since boot (field 22 of /proc/<pid>/stat)
  num_attempts INTEGER NOT NULL DEFAULT 0,
  UNIQUE (sweep_id, spec_hash),
  UNIQUE (sweep_id, ordinal)
) STRICT;

CREATE INDEX trial_by_hash ON trial (spec_hash);

-- One run of a trial that came to an end, numbered from 1 in the order they were made. Those of another environment than
-- the trial's latest do not count (is_counted 0) and are kept. samples: JSON array, ns of the timed, untraced steps.
CREATE TABLE measurement (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  attempt INTEGER NOT NULL CHECK (attempt > 0),
  purpose TEXT NOT NULL CHECK (purpose IN ('first', 'again', 'longer', 'in_turns')),
  status TEXT NOT NULL CHECK (status IN ('ok', 'invalid', 'oom', 'wrong', 'failed', 'crashed', 'hung')),
  reason TEXT NOT NULL DEFAULT '',
  is_counted INTEGER NOT NULL CHECK (is_counted IN (0, 1)),
  num_steps INTEGER NOT NULL,  -- timed, untraced steps that were asked for
  samples TEXT NOT NULL DEFAULT '[]',
  played TEXT NOT NULL DEFAULT '[]',  -- the same steps played with the run's robust durations
  probe_ns INTEGER,            -- a fixed piece of work, the median of its runs between the steps
  step_ns INTEGER,             -- what is compared: median of what was played, else of the samples; and its interval
  step_ns_low INTEGER,
  step_ns_high INTEGER,
  window_start TEXT NOT NULL,
  window_end TEXT NOT NULL,
  duration_ns INTEGER,         -- real time of the whole run
  environment_id INTEGER REFERENCES environment(id) ON DELETE SET NULL,
  "commit" TEXT NOT NULL,      -- of the build that measured
  PRIMARY KEY (trial_id, attempt)
) STRICT, WITHOUT ROWID;

-- Name and value rows, so that a new knob needs no migration.
CREATE TABLE trial_knob (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,  -- position in the knob table
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (trial_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE prediction (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  value REAL,
  grade TEXT NOT NULL CHECK (grade IN ('measured', 'calibrated', 'analytic')),
  PRIMARY KEY (trial_id, name)
) STRICT, WITHOUT ROWID;

-- rank -1: the whole run. Names, units and directions come from the metric table of the program.
CREATE TABLE metric (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  rank INTEGER NOT NULL,
  name TEXT NOT NULL,
  unit TEXT NOT NULL,
  value REAL,
  PRIMARY KEY (trial_id, rank, name)
) STRICT, WITHOUT ROWID;

-- One training step of the whole run.
CREATE TABLE step (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  step INTEGER NOT NULL,
  is_warmup INTEGER NOT NULL CHECK (is_warmup IN (0, 1)),
  is_traced INTEGER NOT NULL CHECK (is_traced IN (0, 1)),
  step_ns INTEGER NOT NULL,
  loss REAL,       -- mean cross-entropy, nats per token
  aux_loss REAL,
  z_loss REAL,
  grad_norm REAL,  -- before clipping
  lr REAL,
  PRIMARY KEY (trial_id, step)
) STRICT, WITHOUT ROWID;

-- What each rank did in the traced steps, summed per operation and pass.
CREATE TABLE op (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  rank INTEGER NOT NULL,
  name TEXT NOT NULL,
  count INTEGER NOT NULL,
  flops INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  PRIMARY KEY (trial_id, rank, name)
) STRICT, WITHOUT ROWID;

-- "group": a memory group, "total" (the peak itself) or "capacity". bytes NULL: predicted only.
CREATE TABLE memory_peak (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  rank INTEGER NOT NULL,
  "group" TEXT NOT NULL,
  bytes INTEGER,
  predicted_bytes INTEGER,
  peak_allocation TEXT NOT NULL DEFAULT '',  -- of the row "total": the allocation that set the peak
  PRIMARY KEY (trial_id, rank, "group")
) STRICT, WITHOUT ROWID;

-- Texts of a trial in the order they were written: log, reason, routing_profile, stderr, ...
CREATE TABLE trial_log (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (trial_id, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE decision (
  id INTEGER PRIMARY KEY,
  sweep_id INTEGER NOT NULL REFERENCES sweep(id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  phase TEXT NOT NULL CHECK (phase IN ('contract', 'fit', 'scale', 'profile', 'retune', 'validate')),
  kind TEXT NOT NULL CHECK (kind IN ('tried', 'kept', 'rejected', 'undecided', 'wall', 'pruned', 'note')),
  trial_id INTEGER REFERENCES trial(id) ON DELETE SET NULL,
  baseline_trial_id INTEGER REFERENCES trial(id) ON DELETE SET NULL,
  wall TEXT CHECK (wall IN ('communication', 'host', 'pipeline', 'imbalance', 'memory', 'compute', 'unknown')),
  remedy TEXT NOT NULL DEFAULT '',
  knob TEXT NOT NULL DEFAULT '',
  value_before TEXT NOT NULL DEFAULT '',
  value_after TEXT NOT NULL DEFAULT '',
  gain_ratio REAL,
  gain_low_ratio REAL,   -- interval of the gain
  gain_high_ratio REAL,
  noise_ratio REAL,
  text TEXT NOT NULL,
  evidence_json TEXT NOT NULL DEFAULT '{}',
  UNIQUE (sweep_id, ordinal)
) STRICT;

-- Names of trace records and groups, once each.
CREATE TABLE StringIds (
  id INTEGER PRIMARY KEY,
  value TEXT NOT NULL UNIQUE
) STRICT;

-- The window of one traced step of one rank.
CREATE TABLE trace_step (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  step INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  start INTEGER NOT NULL,  -- ns on the run's clock
  "end" INTEGER NOT NULL,
  PRIMARY KEY (trial_id, step, rank)
) STRICT, WITHOUT ROWID;

-- The records of traced steps, as each process has left them: packed columns (profiler/store/trace_blob.h), in which texts
-- are ids of StringIds. `moetune trace` writes them for other tools.
CREATE TABLE trace_blob (
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  part INTEGER NOT NULL,
  num_records INTEGER NOT NULL,
  columns BLOB NOT NULL,
  PRIMARY KEY (trial_id, part)
) STRICT;

-- One hunt of `moetune bisect`: between a good and a bad end, which commit moved a metric. config_hash is its identity:
-- the same hash resumes. verdict is empty until there is one.
CREATE TABLE bisect_hunt (
  id INTEGER PRIMARY KEY,
  config_hash TEXT NOT NULL UNIQUE,
  config_json TEXT NOT NULL,
  repository TEXT NOT NULL,
  good TEXT NOT NULL,
  bad TEXT NOT NULL,
  metric TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('running', 'done', 'interrupted', 'failed')),
  verdict TEXT NOT NULL DEFAULT '' CHECK (verdict IN ('', 'culprit', 'no_change', 'environment_changed', 'unresolved')),
  result_json TEXT NOT NULL DEFAULT '{}',
  command_line TEXT NOT NULL,
  tool_version TEXT NOT NULL,
  tool_commit TEXT NOT NULL,
  started_at TEXT NOT NULL,
  ended_at TEXT
) STRICT;

-- What a hunt chooses from, oldest first: position 0 is the good end, the last one the bad end.
CREATE TABLE bisect_commit (
  hunt_id INTEGER NOT NULL REFERENCES bisect_hunt(id) ON DELETE CASCADE,
  position INTEGER NOT NULL CHECK (position BETWEEN 0 AND 2147483647),
  commit_id TEXT NOT NULL,
  subject TEXT NOT NULL,
  author TEXT NOT NULL,
  author_date TEXT NOT NULL,
  PRIMARY KEY (hunt_id, position)
) STRICT, WITHOUT ROWID;

-- One measurement of a hunt, in the order they were made. "key": what it may be reused for (commit, spec, machine,
-- driver, clocks). value NULL: there is none, status and message say why.
CREATE TABLE bisect_run (
  hunt_id INTEGER NOT NULL REFERENCES bisect_hunt(id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  position INTEGER NOT NULL CHECK (position BETWEEN 0 AND 2147483647),
  "key" TEXT NOT NULL,
  purpose TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('ok', 'build_failed', 'crashed', 'oom', 'hung', 'no_metric', 'interrupted')),
  value REAL,
  metrics_json TEXT NOT NULL DEFAULT '{}',
  message TEXT NOT NULL DEFAULT '',
  build_seconds REAL,
  run_seconds REAL,
  started_at TEXT NOT NULL,
  PRIMARY KEY (hunt_id, ordinal)
) STRICT, WITHOUT ROWID;

-- Schema of a rank process's shard. Plain append-only tables: it lives for one trial and is read once. Its table
-- trace_record is made of the columns in trace_columns.h.
CREATE TABLE step (
  step INTEGER NOT NULL, is_warmup INTEGER NOT NULL, is_traced INTEGER NOT NULL, step_ns INTEGER NOT NULL,
  loss REAL, aux_loss REAL, z_loss REAL, grad_norm REAL, lr REAL
) STRICT;

CREATE TABLE trace_step (
  step INTEGER NOT NULL, rank INTEGER NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL
) STRICT;

-- What a record (correlationId) had to wait for beside its producer_id.
CREATE TABLE trace_wait (
  step INTEGER NOT NULL, rank INTEGER NOT NULL, correlationId INTEGER NOT NULL, producer_id INTEGER NOT NULL
) STRICT;

CREATE TABLE memory (
  rank INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, capacity_bytes INTEGER NOT NULL, weights INTEGER NOT NULL,
  gradients INTEGER NOT NULL, optimizer INTEGER NOT NULL, activations INTEGER NOT NULL, workspace INTEGER NOT NULL,
  communication INTEGER NOT NULL, peak_allocation TEXT NOT NULL
) STRICT;

CREATE TABLE op (
  rank INTEGER NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL, flops INTEGER NOT NULL, bytes INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL
) STRICT;

-- A step of one rank in measured virtual time. Lists of whole numbers such as [12,13]: how long its operations and the
-- host's work took, in the program's order; its routed rows; the probe's durations.
CREATE TABLE work (
  step INTEGER NOT NULL, rank INTEGER NOT NULL, durations TEXT NOT NULL, rows TEXT NOT NULL, probes TEXT NOT NULL
) STRICT;

CREATE TABLE metric (
  rank INTEGER NOT NULL, name TEXT NOT NULL, value REAL
) STRICT;

CREATE TABLE text (
  name TEXT NOT NULL, value TEXT NOT NULL
) STRICT;

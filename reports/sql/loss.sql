-- Every step of the final run.
SELECT step, is_warmup, is_traced, step_ns, loss, aux_loss, z_loss, grad_norm, lr
FROM step
WHERE trial_id = :final_id
ORDER BY step;

-- Prove that scripts may be run here.
--
-- KEYS, ARGV  none
-- Returns     the server's time: seconds, microseconds.
--
-- Idempotent: writes nothing.
return redis.call('TIME')

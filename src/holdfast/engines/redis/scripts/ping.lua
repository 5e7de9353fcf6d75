-- Prove that scripts may be run here.
--
-- KEYS, ARGV  none
-- Returns     the server's time: seconds, microseconds.
return redis.call('TIME')

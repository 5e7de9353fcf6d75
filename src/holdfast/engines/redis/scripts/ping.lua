-- Prove that scripts may be run here.
--
-- KEYS, ARGV  none
-- Returns     1
return 1

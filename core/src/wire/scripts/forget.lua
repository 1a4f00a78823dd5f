-- FORGET: deletes the fence counter of an unused resource, and returns 1. If the resource is held or has waiters,
-- deletes nothing and returns 0.
--
-- KEYS: the lock key, the fence key, the queue, the readers.

if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end
redis.call('DEL', KEYS[2], KEYS[4])
return 1

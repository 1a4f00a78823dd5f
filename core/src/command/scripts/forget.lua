-- FORGET: 1 if nothing is kept of the resource any more; 0 if somebody holds it or waits for it.
--
-- KEYS: the lock key, the fence key, the queue.

if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end
redis.call('DEL', KEYS[2])
return 1

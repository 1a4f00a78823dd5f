-- RELEASE and UNDO: deletes the lock keys that the token holds, or keeps them for a given time. Notifies the next
-- waiter for each resource that is free now. Returns 1 if the token held all resources; else 0.
--
-- KEYS: for each resource the lock key and the queue.
-- ARGV: the token, and the argument about the queue (see queue.lua). Only if the waiter joins the queue or the lock
-- keys are kept, also: for how long to keep the lock keys (milliseconds; '0' to delete them). Without this argument,
-- the fast path is possible.

-- Fast path: one resource, no waiters.
if #KEYS == 2 and not ARGV[3] and redis.pcall('EXISTS', KEYS[2]) ~= 1 then
  if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  redis.call('DEL', KEYS[1])
  return 1
end

local token, queue_argument, keep, done = ARGV[1], ARGV[2], ARGV[3] ~= '0' and ARGV[3], 1
--- clock.lua
--- queue.lua

for i = 1, #KEYS, 2 do
  local lock, queue = KEYS[i], KEYS[i + 1]
  local is_held = redis.pcall('GET', lock) == token
  if not is_held then
    done = 0
  elseif keep then
    redis.call('PEXPIRE', lock, keep)
  else
    redis.call('DEL', lock)
  end
  if ticket then
    put(queue, ticket, waiter)
  elseif waiter then
    leave(queue)
  end
  local first = redis.pcall('ZRANGE', queue, 0, 0)
  if first[1] and (is_held and not keep or redis.pcall('EXISTS', lock) == 0) then
    notify_next(lock, queue, is_held)
  elseif reads(first[1]) then
    invite_readers(lock, queue)
  end
end
return done

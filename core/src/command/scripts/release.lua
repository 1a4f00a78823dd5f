-- RELEASE and UNDO: 1 if this token held all resources; else 0. What it held is deleted, and of each
-- resource that is free now the next waiter is called.
--
-- KEYS: of each resource the lock key and the queue.
-- ARGV: the token, for how many microseconds a waiter that is called goes first, and for how many
-- milliseconds a queue is kept. If it was a waiter's, also: the waiter, and its ticket (or '', if it does
-- not wait any more).

-- Mostly it is one, and nobody waits.
if #KEYS == 2 and not ARGV[4] and redis.pcall('EXISTS', KEYS[2]) ~= 1 then
  if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  redis.call('DEL', KEYS[1])
  return 1
end

--- queue.lua

local token, call, kept, waiter = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local ticket, done = tonumber(ARGV[5]), 1
for i = 1, #KEYS, 2 do
  local lock, queue = KEYS[i], KEYS[i + 1]
  local is_held = redis.pcall('GET', lock) == token
  if is_held then redis.call('DEL', lock) else done = 0 end
  if ticket then
    put(queue, ticket, waiter, kept)
  elseif waiter then
    redis.pcall('ZREM', queue, waiter)
  end
  local first = redis.pcall('ZRANGE', queue, 0, 0)
  if first[1] and (is_held or redis.call('EXISTS', lock) == 0) then
    call_next(lock, queue, is_held, call, kept)
  end
end
return done

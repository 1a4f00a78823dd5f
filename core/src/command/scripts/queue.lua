-- The queue of the waiters for a resource: a sorted set of their names. A name is the client's
-- channel, `#`, and the client's number for the waiter. The score of a waiter is its ticket. A
-- notified waiter gets a turn: a period in which the resource is granted to no one else. Its
-- score is then negative: minus the time at which the turn ends, in microseconds.
--
-- A queue only speeds things up: if it is lost, forbidden or invalid, waiters still retry on their
-- own.

-- Adds or moves a waiter. `kept`: the ttl of the queue in milliseconds, which each waiter that
-- joins renews.
local function put(queue, score, waiter, kept)
  local put = redis.pcall('ZADD', queue, string.format('%.0f', score), waiter)
  -- An error means that the key has a value of another type. Such a key must not be made to expire.
  if type(put) == 'number' then redis.pcall('PEXPIRE', queue, kept) end
end

-- Returns the remaining time of a turn, in microseconds. If it exceeds the longest possible turn,
-- the clock was set back after the turn began, and the turn is ignored.
local function left(score, now)
  local left = -score - now
  return score < 0 and left <= LONGEST_CALL and math.max(left, 0) or 0
end

-- Notifies the first waiter that listens, unless a notified waiter still has its turn. Waiters that
-- do not listen are removed. `is_new`: the resource has just become free. `turn`: the length of the
-- new turn, in microseconds.
local function notify_next(lock, queue, is_new, turn, kept)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  for _ = 1, MOST_GONE do
    local first = redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local waiter, score = first[1], tonumber(first[2])
    if not waiter then return end
    local is_notified = left(score, now) > 0
    if is_notified and not is_new then return end
    local receivers = 0
    local channel, number = string.match(waiter, '^(.*)#(%d+)$')
    -- A waiter that was notified and did not use its turn is not notified again.
    if channel and (score > 0 or is_notified) then
      receivers = redis.pcall('PUBLISH', channel, number .. ' ' .. lock)
      if type(receivers) == 'table' then return end
    end
    if receivers > 0 then return put(queue, -(now + turn), waiter, kept) end
    redis.pcall('ZREM', queue, waiter)
  end
end

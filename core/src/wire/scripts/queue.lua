-- The queue of the waiters for a resource: a sorted set of their names. A name is the client's channel,
-- `#`, and the number that the client has given the waiter. The score of a waiter is its ticket. A
-- notified waiter gets a turn: a period in which the resource is granted to no one else. The waiter's
-- score is then negative: minus the time at which the turn ends, in microseconds.
--
-- The number of a waiter that wants to read begins with the digit 0. Readers that are next to each other in
-- the queue get their turns together.
--
-- A queue only speeds things up: if the queue is lost or invalid, or if its commands are not permitted, waiters still
-- retry on their own. So queue commands use pcall, and their errors never end the script. A script must read the clock
-- (`now`) before it inserts this file.
--
-- A script gets all values about the queue as one argument, because a server spends CPU on each argument. Spaces
-- separate the values: `turn`, the length of a notified waiter's turn (microseconds), and `kept`, the ttl of the queue
-- (milliseconds). For a round of a waiter also: `reserve`, for how long the waiter keeps its turn if another resource
-- is held (microseconds); `ticket` ('-' if the waiter does not join the queue); and `waiter`. Before it inserts this
-- file, a script must set `queue_argument` to this argument, or to nil.

local turn, kept, reserve, ticket, waiter =
  string.match(queue_argument or '', '^(%d+) (%d+) ?(%d*) ?(%S*) ?(.*)$')
turn, reserve, ticket = tonumber(turn), tonumber(reserve), tonumber(ticket)
if waiter == '' then waiter = nil end

-- Adds a waiter to the queue, or changes its score. Each call renews the ttl of the queue.
local function put(queue, score, waiter)
  local added = redis.pcall('ZADD', queue, string.format('%.0f', score), waiter)
  -- If ZADD fails, the key may have a value of another type. Such a key must not be made to expire.
  if type(added) == 'number' and type(redis.pcall('PEXPIRE', queue, kept)) ~= 'number' then
    redis.pcall('ZREM', queue, waiter) -- A queue without a ttl would stay for ever.
  end
end

-- Returns the remaining time of a turn, in microseconds. If the remaining time exceeds the longest possible
-- turn, the clock was set back after the turn began, and the turn counts as over.
local function left(score)
  local left = -score - now
  return score < 0 and left <= LONGEST_CALL and math.max(left, 0) or 0
end

-- Returns the name that a waiter has in the queue of a resource that the waiter wants to read.
local function reader_name(waiter)
  return (string.gsub(waiter, '#(%d+)$', '#0%1'))
end

-- Removes the waiter of this script from a queue, under both of its names: an upgrade or a DOWNGRADE may have changed
-- the mode of its lease since it joined.
local function leave(queue)
  redis.pcall('ZREM', queue, waiter, reader_name(waiter))
end

-- Whether a waiter with this name wants to read.
local function reads(name)
  return name and string.find(name, '#0%d+$') ~= nil
end

-- Sends a message to a waiter. Returns the number of listeners; nil if PUBLISH is not permitted.
local function tell(waiter, text)
  local channel = string.match(waiter, '^(.*)#%d+$')
  if not channel then return 0 end
  local listeners = redis.pcall('PUBLISH', channel, text)
  return type(listeners) == 'number' and listeners or nil
end

-- Notifies a waiter about a resource. Returns the same as `tell`.
local function notify(waiter, lock)
  local number = string.match(waiter, '#(%d+)$')
  return number and tell(waiter, number .. ' ' .. lock) or 0
end

-- Whether a waiter is silent: it has made no attempt for at least LONGEST_SILENCE, for example because its process is
-- suspended. Called only for waiters that others must not overtake. Time is divided into periods of LONGEST_SILENCE,
-- numbered 1, 2, 3, 1, and so on. Tickets are multiples of 4. The first call of this function for a waiter adds the
-- number of the current period to the waiter's score. Each attempt of the waiter sets the score back to the ticket. If
-- the score still has this number two periods later, the waiter is silent.
local function is_silent(queue, waiter)
  local score = tonumber(redis.pcall('ZSCORE', queue, waiter)) or 0
  local third, since = math.floor(now / LONGEST_SILENCE) % 3 + 1, score % 4
  if since == 0 then redis.pcall('ZADD', queue, string.format('%.0f', score + third), waiter) end
  return since > 0 and (third - since) % 3 == 2
end

-- Whether a writer waits ahead of this ticket, or anywhere in the queue if `ticket` is nil. Removes writers
-- that do not listen or are silent (see `is_silent`).
local function writer_waits(queue, ticket)
  local gone, before = 0, ticket and string.format('(%.0f', ticket) or '+inf'
  for _, waiter in ipairs(redis.pcall('ZRANGEBYSCORE', queue, 0, before)) do
    if not reads(waiter) then
      local listeners = tell(waiter, '')
      if not listeners or gone == MOST_GONE then return false end
      if listeners > 0 and not is_silent(queue, waiter) then return true end
      redis.pcall('ZREM', queue, waiter)
      gone = gone + 1
    end
  end
  return false
end

-- Notifies the readers behind `first`, which has just been notified, up to the first writer.
local function notify_readers(lock, queue, first, is_new)
  local all = redis.pcall('ZRANGE', queue, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local waiter, score = all[i], tonumber(all[i + 1])
    local is_notified = left(score) > 0
    if waiter ~= first then
      if score < 0 and not is_notified then
        redis.pcall('ZREM', queue, waiter)
      elseif not reads(waiter) then
        return
      elseif is_new or not is_notified then
        local listeners = notify(waiter, lock)
        if not listeners then return end
        if listeners > 0 then
          put(queue, -(now + turn), waiter)
        else
          redis.pcall('ZREM', queue, waiter)
        end
      end
    end
  end
end

-- Notifies the first waiter that listens. Does nothing while a notified waiter has its turn, unless the
-- resource has just become free (`is_new`). Removes waiters that do not listen.
local function notify_next(lock, queue, is_new)
  for _ = 1, MOST_GONE do
    local first = redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local waiter, score = first[1], tonumber(first[2])
    if not waiter then return end
    local is_notified = left(score) > 0
    if is_notified and not is_new then return end
    local listeners = 0
    -- A waiter that was notified and did not use its turn is not notified again.
    if score > 0 or is_notified then
      listeners = notify(waiter, lock)
      if not listeners then return end
    end
    if listeners > 0 then
      put(queue, -(now + turn), waiter)
      if reads(waiter) then notify_readers(lock, queue, waiter, is_new) end
      return
    end
    redis.pcall('ZREM', queue, waiter)
  end
end

-- Notifies the readers at the head of the queue, if readers hold the resource.
local function invite_readers(lock, queue)
  local first = redis.pcall('ZRANGE', queue, 0, 0)
  if reads(first[1]) and redis.pcall('GET', lock) == MARKER then
    notify_next(lock, queue, false)
  end
end

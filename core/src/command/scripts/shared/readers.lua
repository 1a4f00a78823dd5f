-- The readers of a resource: a sorted set of their tokens. The score of a reader is the time at which
-- its share expires, by this node's clock, in milliseconds. While there are readers, the lock key holds
-- MARKER and expires with the last of them. Without the marker nobody reads, whatever the set contains.
-- A resource that is locked exclusively has no such set; its lock key then takes the place of the
-- set's key in KEYS.

--
-- A script that inserts this has read what remains of the lock key and of the set (`pttl`, in milliseconds) before it has
-- read the clock (`now`). So a time that is computed from both is never too early, wherever the server was paused. All times
-- are set as absolute ones, also to delete a key: then one command needs to be permitted.

local clock = math.floor(now / 1000)

-- Returns when the share of the token expires; nil if it has none.
local function share(lock, readers, token)
  if redis.pcall('GET', lock) ~= MARKER then return nil end
  local till = redis.pcall('ZSCORE', readers, token)
  till = type(till) == 'string' and tonumber(till)
  return till and till > clock and till or nil
end

-- Whether the token holds the resource, in either mode.
local function holds(lock, readers, token)
  return redis.pcall('GET', lock) == token or share(lock, readers, token) ~= nil
end

-- Tries commands that change nothing, and returns the error of the first one that is refused. To be called before the
-- first write, so that an error means that nothing was changed.
local function first_error(commands)
  for _, command in ipairs(commands) do
    local reply = redis.pcall(unpack(command))
    if type(reply) == 'table' and reply.err then return reply end
  end
end

-- Commands that change nothing: the first sets the expiry of a key as it is, where a set without a ttl gets one of a day.
local function keep_expiry(key)
  if pttl[key] == -1 then pttl[key] = 86400000 end
  return {'PEXPIREAT', key, pttl[key] == -2 and '1' or string.format('%.0f', clock + pttl[key])}
end

local function keep_value(lock)
  return {'SET', lock, MARKER, pttl[lock] == -2 and 'XX' or 'NX', 'PX', '1'}
end

-- Tries what `join_readers` does. Returns the error if something is refused. An EXTEND needs no memory, so ZADD, which a
-- full server refuses as the first write, is not the first.
local function cannot_join(readers)
  return first_error({keep_expiry(readers), {'ZADD', readers, 'XX', '0', ''}})
end

-- Tries everything that may change a resource. Returns the error if something is refused.
local function cannot_change(lock, readers)
  if readers == lock then
    return pttl[lock] ~= -1 and first_error({keep_expiry(lock)}) or first_error({keep_value(lock)})
  end
  local last = redis.pcall('ZRANGE', readers, '0', '0')
  if last.err then return last end
  pttl[readers] = pttl[readers] or redis.call('PTTL', readers)
  return cannot_join(readers) or first_error({
    {'ZREM', readers, ''}, {'ZREMRANGEBYSCORE', readers, '+inf', '-inf'}, keep_value(lock),
  })
end

-- Makes a key expire after a time in milliseconds. If that has passed, deletes it at once.
local function expire_in(key, ttl)
  redis.call('PEXPIREAT', key, ttl > 0 and string.format('%.0f', clock + ttl) or '1')
  pttl[key] = ttl > 0 and ttl or -2
end

-- The set may be a new one, so it always gets its ttl.
local function put_share(readers, token, ttl)
  redis.call('ZADD', readers, string.format('%.0f', clock + ttl), token)
  expire_in(readers, math.max(pttl[readers], ttl))
end

-- Makes the token the only reader, for a time in milliseconds.
local function begin_reading(lock, readers, token, ttl)
  redis.call('ZREMRANGEBYSCORE', readers, '-inf', '+inf')
  pttl[readers] = -2
  put_share(readers, token, ttl)
  redis.call('SET', lock, MARKER, 'PX', string.format('%.0f', ttl))
  pttl[lock] = ttl
end

-- Makes the token one more reader. Never shortens its share, or the ttl of a key.
local function join_readers(lock, readers, token, ttl)
  if (share(lock, readers, token) or 0) < clock + ttl then put_share(readers, token, ttl) end
  for _, key in ipairs({lock, readers}) do
    if pttl[key] < ttl then expire_in(key, ttl) end
  end
end

-- Makes the keys expire with the last reader, after a share was removed or shortened. Deletes them if
-- there is none.
local function fit_expiry(lock, readers)
  local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  for _, key in ipairs({lock, readers}) do expire_in(key, tonumber(last[2] or 0) - clock) end
end

-- Removes the share of the token. Returns whether it was there: then no writer has been granted the
-- resource since, even if the share has expired.
local function stop_reading(lock, readers, token)
  if redis.pcall('GET', lock) ~= MARKER or redis.pcall('ZREM', readers, token) ~= 1 then
    return false
  end
  fit_expiry(lock, readers)
  return true
end

-- Whether the token is the only reader.
local function reads_alone(lock, readers, token)
  return share(lock, readers, token) ~= nil and redis.pcall('ZCOUNT', readers, '(' .. clock, '+inf') == 1
end


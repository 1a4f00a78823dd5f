-- The readers of a resource: a sorted set of their tokens. The score of a reader is the time at which
-- its share expires, by this node's clock, in milliseconds. While there are readers, the lock key holds
-- MARKER and expires with the last of them. Without the marker nobody reads, whatever the set contains.
-- A resource that is locked exclusively has no such set; its lock key then takes the place of the
-- set's key in KEYS.

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

local function put_share(readers, token, till)
  redis.call('ZADD', readers, string.format('%.0f', till), token)
end

local function expire_at(lock, readers, till)
  redis.call('PEXPIREAT', lock, string.format('%.0f', till))
  redis.call('PEXPIREAT', readers, string.format('%.0f', till))
end

-- Makes the token the only reader, for a time in milliseconds.
local function begin_reading(lock, readers, token, ttl)
  redis.call('DEL', readers)
  put_share(readers, token, clock + ttl)
  redis.call('SET', lock, MARKER)
  expire_at(lock, readers, clock + ttl)
end

-- Makes the token one more reader. Never shortens its share, or the ttl of a key.
local function join_readers(lock, readers, token, ttl)
  local till = clock + ttl
  if (share(lock, readers, token) or 0) < till then put_share(readers, token, till) end
  for _, key in ipairs({lock, readers}) do
    if redis.call('PTTL', key) < ttl then redis.call('PEXPIREAT', key, string.format('%.0f', till)) end
  end
end

-- Makes the keys expire with the last reader, after a share was removed or shortened. Deletes them if
-- there is none.
local function fit_expiry(lock, readers)
  local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  local till = tonumber(last[2] or 0)
  if till > clock then
    expire_at(lock, readers, till)
  else
    redis.call('DEL', lock, readers)
  end
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
  return share(lock, readers, token) ~= nil and redis.call('ZCOUNT', readers, '(' .. clock, '+inf') == 1
end


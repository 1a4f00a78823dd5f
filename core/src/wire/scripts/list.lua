-- LIST: returns one page of the lock keys that match a pattern: {cursor, key...}. The last page has the
-- cursor '0'. A lock key is recognized by its value: a token, which begins with 40 hexadecimal digits, or
-- MARKER if readers hold the resource. Writes nothing.
--
-- ARGV: the cursor, the pattern, and the approximate number of keys to look at.

local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local found = {page[1]}
for _, key in ipairs(page[2]) do
  local value = redis.pcall('GETRANGE', key, 0, 40)
  if type(value) == 'string' then
    local token, after = string.sub(value, 1, 40), string.sub(value, 41)
    local is_token = #token == 40 and not string.find(token, '[^0-9a-f]')
    if value == MARKER or is_token and (after == '' or after == ';') then
      found[#found + 1] = key
    end
  elseif string.find(value.err, ' run ', 1, true) or string.find(value.err, 'undeclared', 1, true) then
    -- The user lacks permission for GETRANGE, or the server refuses a key that is not in KEYS. After any other error,
    -- the key is left out: its value has another type, or the user lacks access to the key.
    return value
  end
end
return found

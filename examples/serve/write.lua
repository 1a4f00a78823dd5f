-- Stands for the storage of the shop: writes the status of an order, unless a holder with a larger fence has written.
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'status', ARGV[2])
return 1

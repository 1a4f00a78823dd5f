# Waits for the payment of an order, and records it. One worker at a time handles an order, whatever its language.
#
#   QUORLOCK_SOCKET=/run/quorlock/quorlock.sock SHOP_URL=redis://127.0.0.1:6379 ruby worker.rb 42

require 'redis'

$stdout.sync = true
order = ARGV.fetch(0)
write = File.read('../write.lua')
shop = Redis.new(url: ENV.fetch('SHOP_URL'))
# A lease belongs to a connection: one that redis-rb opens by itself has none. With the gem connection_pool, do all of
# this within one `with`.
locks = Redis.new(path: ENV.fetch('QUORLOCK_SOCKET'), reconnect_attempts: 0)

begin
  lease, fence = locks.call('LOCK', "orders:#{order}", 'WAIT', 1000)
rescue Redis::CommandError => e
  raise unless e.message.start_with?('TIMEOUT ')

  puts "order #{order} is being handled"
  exit
end
puts "order #{order} locked, fence #{fence}"
shop.blpop("payments:#{order}")
locks.call('CHECK', lease) # raises if the lease was lost
abort 'a later worker has written' if shop.eval(write, ["order:#{order}"], [fence, 'paid']).zero?
puts "order #{order} paid"
locks.call('UNLOCK', lease)

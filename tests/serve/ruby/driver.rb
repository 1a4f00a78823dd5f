# The driver of redis-rb: `driver.rb SOCKET`. ../clients.py describes the protocol.
require 'json'
require 'redis'

$stdout.sync = true
client = Redis.new(path: ARGV.fetch(0), read_timeout: 0, reconnect_attempts: 0)
$stdin.each_line(chomp: true) do |line|
  reply = client.call(*line.split("\t", -1))
rescue Redis::BaseError => e
  puts JSON.generate('error' => e.message)
else
  puts JSON.generate(reply)
end

<?php
// Waits for the payment of an order, and records it. One worker at a time handles an order, whatever its language.
//
//   QUORLOCK_SOCKET=/run/quorlock/quorlock.sock SHOP_URL=redis://127.0.0.1:6379 php worker.php 42

require 'Predis/autoload.php';

$order = $argv[1];
$write = file_get_contents('../write.lua');
$shop = new Predis\Client(getenv('SHOP_URL') . '?read_write_timeout=-1'); // BLPOP waits
// A lease belongs to a connection. A persistent one would keep it when this script ends, so do not set `persistent`.
$locks = new Predis\Client(['scheme' => 'unix', 'path' => getenv('QUORLOCK_SOCKET')]);

function ask(Predis\Client $locks, string ...$words): mixed
{
    $reply = $locks->executeRaw($words, $failed);
    return $failed ? throw new RuntimeException($reply) : $reply;
}

try {
    [$lease, $fence] = ask($locks, 'LOCK', "orders:$order", 'WAIT', '1000');
} catch (RuntimeException $error) {
    if (!str_starts_with($error->getMessage(), 'TIMEOUT ')) {
        throw $error;
    }
    exit("order $order is being handled\n");
}
echo "order $order locked, fence $fence\n";
$shop->blpop("payments:$order", 0);
ask($locks, 'CHECK', $lease); // throws if the lease was lost
if (!$shop->eval($write, 1, "order:$order", $fence, 'paid')) {
    throw new RuntimeException('a later worker has written');
}
echo "order $order paid\n";
ask($locks, 'UNLOCK', $lease);

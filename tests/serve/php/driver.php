<?php
// The driver of Predis: `driver.php SOCKET`. ../clients.py describes the protocol.
require 'Predis/autoload.php';

$client = new Predis\Client(['scheme' => 'unix', 'path' => $argv[1], 'read_write_timeout' => -1], ['exceptions' => false]);
while (($line = fgets(STDIN)) !== false) {
    try {
        $reply = $client->executeRaw(explode("\t", rtrim($line, "\n")), $failed);
    } catch (Predis\PredisException $error) {
        [$reply, $failed] = [$error->getMessage(), true];
    }
    echo json_encode($failed ? ['error' => $reply] : $reply, JSON_UNESCAPED_UNICODE), "\n";
}

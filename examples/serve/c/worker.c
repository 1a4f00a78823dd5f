// Waits for the payment of an order, and records it. One worker at a time handles an order, whatever its language.
//
//   cc -o worker worker.c -lhiredis
//   QUORLOCK_SOCKET=/run/quorlock/quorlock.sock SHOP_HOST=127.0.0.1 SHOP_PORT=6379 ./worker 42
#include <err.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisContext *opened(redisContext *context) {
    if (!context || context->err) errx(1, "cannot connect: %s", context ? context->errstr : "out of memory");
    return context;
}

// Exits if there is no reply. The end of the process also ends the connection, which releases its leases.
static redisReply *succeeded(redisContext *context, redisReply *reply) {
    if (!reply) errx(1, "%s", context->errstr);
    if (reply->type == REDIS_REPLY_ERROR) errx(1, "%s", reply->str);
    return reply;
}

int main(int count, char **arguments) {
    if (count != 2) errx(64, "usage: worker ORDER");
    const char *order = arguments[1];
    char write[1024] = {0};
    FILE *file = fopen("../write.lua", "r");
    if (!file || !fread(write, 1, sizeof write - 1, file)) err(1, "../write.lua");
    fclose(file);
    redisContext *shop = opened(redisConnect(getenv("SHOP_HOST"), atoi(getenv("SHOP_PORT"))));
    // A lease belongs to a connection.
    redisContext *locks = opened(redisConnectUnix(getenv("QUORLOCK_SOCKET")));

    redisReply *lease = redisCommand(locks, "LOCK orders:%s WAIT 1000", order);
    if (lease && lease->type == REDIS_REPLY_ERROR && !strncmp(lease->str, "TIMEOUT ", 8)) {
        printf("order %s is being handled\n", order);
        return 0;
    }
    succeeded(locks, lease);
    const char *id = lease->element[0]->str;
    long long fence = lease->element[1]->integer;
    printf("order %s locked, fence %lld\n", order, fence);
    fflush(stdout);
    freeReplyObject(succeeded(shop, redisCommand(shop, "BLPOP payments:%s 0", order)));
    freeReplyObject(succeeded(locks, redisCommand(locks, "CHECK %s", id)));
    redisReply *written = redisCommand(shop, "EVAL %s 1 order:%s %lld paid", write, order, fence);
    if (!succeeded(shop, written)->integer) errx(1, "a later worker has written");
    printf("order %s paid\n", order);
    freeReplyObject(succeeded(locks, redisCommand(locks, "UNLOCK %s", id)));
    freeReplyObject(written);
    freeReplyObject(lease);
    redisFree(locks);
    redisFree(shop);
    return 0;
}

// The driver of hiredis: `driver SOCKET`. ../clients.py describes the protocol.
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 64 };

static void print_text(const char *text, size_t length) {
    putchar('"');
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = text[i];
        if (byte == '"' || byte == '\\') printf("\\%c", byte);
        else if (byte < 0x20) printf("\\u%04x", byte);
        else putchar(byte);
    }
    putchar('"');
}

static void print_reply(const redisReply *reply) {
    switch (reply->type) {
    case REDIS_REPLY_INTEGER:
        printf("%lld", reply->integer);
        break;
    case REDIS_REPLY_NIL:
        printf("null");
        break;
    case REDIS_REPLY_ARRAY:
        putchar('[');
        for (size_t i = 0; i < reply->elements; i++) {
            if (i) putchar(',');
            print_reply(reply->element[i]);
        }
        putchar(']');
        break;
    default:
        print_text(reply->str, reply->len);
    }
}

static void print_error(const char *text) {
    printf("{\"error\": ");
    print_text(text, strlen(text));
    putchar('}');
}

int main(int count, char **arguments) {
    redisContext *context = count == 2 ? redisConnectUnix(arguments[1]) : NULL;
    if (!context || context->err) {
        fprintf(stderr, "cannot connect: %s\n", context ? context->errstr : "no socket");
        return 1;
    }
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0) {
        const char *words[MOST_WORDS];
        int number = 0;
        line[strcspn(line, "\n")] = 0;
        for (char *rest = line; rest && number < MOST_WORDS;) words[number++] = strsep(&rest, "\t");
        redisReply *reply = redisCommandArgv(context, number, words, NULL);
        if (!reply) print_error(context->errstr);
        else if (reply->type == REDIS_REPLY_ERROR) print_error(reply->str);
        else print_reply(reply);
        putchar('\n');
        fflush(stdout);
        if (reply) freeReplyObject(reply);
    }
    free(line);
    redisFree(context);
    return 0;
}

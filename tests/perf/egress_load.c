/* Load for the egress benchmark, written in C so that it is not the thing measured.

   egress_load serve MEBIBYTES
       prints its port; a connection whose first message is one byte gets that many MiB, any other an echo.
   egress_load bulk PROXY_PORT SERVER_PORT connect|socks NAME
       prints MB/s of one download.
   egress_load connections PROXY_PORT SERVER_PORT connect|socks NAME CLIENTS EACH
       prints connections a second, then the p50 and p99 of one in ms: dial, ask the proxy, one echo, close.
*/
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 64, BLOCK = 262144 };

static int proxy_port, server_port, socks, each;
static long bulk_bytes;
static const char *name;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void put(int fd, const void *data, size_t size) {
    if (write(fd, data, size) != (ssize_t)size) fail("write");
}

static void get(int fd, char *data, size_t size) {
    for (size_t got = 0; got < size;) {
        ssize_t count = read(fd, data + got, size - got);
        if (count <= 0) fail("read");
        got += count;
    }
}

static int dial(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    return fd;
}

static void ask_socks(int fd) {
    unsigned char message[300] = {5, 1, 0};
    size_t length = strlen(name);
    put(fd, message, 3);
    get(fd, (char *)message, 2);
    memcpy(message, "\5\1\0\3", 4);
    message[4] = length;
    memcpy(message + 5, name, length);
    message[5 + length] = server_port >> 8;
    message[6 + length] = server_port & 255;
    put(fd, message, 7 + length);
    get(fd, (char *)message, 10);
    if (message[1]) fail("refused by the proxy");
}

static void ask_connect(int fd) {
    char message[1024];
    int length = sprintf(message, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", name, server_port, name, server_port);
    put(fd, message, length);
    for (length = 0; length < 4 || memcmp(message + length - 4, "\r\n\r\n", 4); length++) {
        if (length == sizeof message) fail("an answer without an end");
        get(fd, message + length, 1);
    }
    if (strncmp(message + 9, "200", 3)) fail("refused by the proxy");
}

static int through(void) {
    int fd = dial(proxy_port ? proxy_port : server_port);
    if (proxy_port) (socks ? ask_socks : ask_connect)(fd);
    return fd;
}

static void *client(void *argument) {
    double *took = argument;
    for (int i = 0; i < each; i++) {
        char message[MESSAGE] = {0};
        double since = now();
        int fd = through();
        put(fd, message, MESSAGE);
        get(fd, message, MESSAGE);
        close(fd);
        took[i] = now() - since;
    }
    return NULL;
}

static void *answer(void *argument) {
    static char zeros[BLOCK];
    char data[4096];
    int fd = (long)argument, one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ssize_t count = read(fd, data, sizeof data);
    if (count == 1)
        for (long left = bulk_bytes; left > 0 && (count = write(fd, zeros, BLOCK)) > 0;) left -= count;
    else
        while (count > 0 && write(fd, data, count) == count) count = read(fd, data, sizeof data);
    close(fd);
    return NULL;
}

static void serve(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 4096)) fail("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 131072);
    for (;;) {
        pthread_t thread;
        long accepted = accept(fd, NULL, NULL);
        if (accepted >= 0 && pthread_create(&thread, &detached, answer, (void *)accepted)) close(accepted);
    }
}

static void bulk(void) {
    static char data[1 << 20];
    int fd = through();
    put(fd, "\0", 1);
    double since = now();
    long total = 0;
    for (ssize_t count; (count = read(fd, data, sizeof data)) > 0;) total += count;
    printf("%.3f\n", total / (now() - since) / 1e6);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void connections(int clients) {
    double *took = malloc(sizeof(double) * clients * each), since = now();
    pthread_t threads[clients];
    for (int i = 0; i < clients; i++) pthread_create(&threads[i], NULL, client, took + i * each);
    for (int i = 0; i < clients; i++) pthread_join(threads[i], NULL);
    double elapsed = now() - since;
    qsort(took, clients * each, sizeof *took, ascending);
    printf("%.3f %.6f %.6f\n", clients * each / elapsed, took[clients * each / 2] * 1e3,
           took[(int)(clients * each * 0.99)] * 1e3);
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "serve")) {
        bulk_bytes = atol(words[2]) << 20;
        serve();
    }
    if (count < 6) return 2;
    proxy_port = atoi(words[2]);
    server_port = atoi(words[3]);
    socks = !strcmp(words[4], "socks");
    name = words[5];
    if (!strcmp(words[1], "bulk")) bulk();
    if (!strcmp(words[1], "connections") && count == 8) {
        each = atoi(words[7]);
        connections(atoi(words[6]));
    }
    return 0;
}

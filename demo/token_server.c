/* A toy that serves tokens, so that the demo has a capture of our own: two workers decode requests (arithmetic), take
   their turn at one tokenizer behind a lock, fetch their weights from disk past the page cache, and a logger writes
   what was served through to the disk. Two embedders take what is left of the CPUs, at idle priority: kernels do not
   always report what happens on an idle CPU. Nothing here is a real model.

   cc -O0 -g -pthread token_server.c -o token_server     (without optimisation every function keeps its frame)
   ./token_server SECONDS FOLDER     (FOLDER: where its two small files may lie) */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 2, EMBEDDERS = 2, BLOCK = 4096, WEIGHTS_BLOCKS = 256, HEAD = 64 };

static pthread_mutex_t tokenizer = PTHREAD_MUTEX_INITIALIZER;
static int weights_fd, log_fd;
static int64_t end_ns;
static volatile float sink;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void nap_us(long us) {
  struct timespec span = {0, us * 1000};
  nanosleep(&span, NULL);
}

static void name_thread(const char *name) { pthread_setname_np(pthread_self(), name); }

static float dot(const float *left, const float *right, int length) {
  float sum = 0;
  for (int i = 0; i < length; i++) sum += left[i] * right[i];
  return sum;
}

static float softmax(float *scores, int length) {
  float sum = 0;
  for (int i = 0; i < length; i++) {
    float x = scores[i] * 0.01f;
    scores[i] = 1 + x * (1 + x * (0.5f + x * (0.16f + x * 0.04f)));
    sum += scores[i];
  }
  return sum;
}

static float attention(const float *query, const float *keys, int tokens) {
  float scores[512];
  for (int i = 0; i < tokens; i++) scores[i] = dot(query, keys + (i % 64) * HEAD, HEAD);
  return softmax(scores, tokens);
}

static float feed_forward(const float *input, const float *weights) {
  float sum = 0;
  for (int row = 0; row < 400; row++) sum += dot(input, weights + (row % 64) * HEAD, HEAD);
  return sum;
}

static float decode_token(const float *data, int tokens) {
  float sum = 0;
  for (int layer = 0; layer < 7; layer++) sum += attention(data, data, tokens) + feed_forward(data, data);
  return sum;
}

static unsigned detokenize(unsigned token) {
  unsigned hash = 2166136261u;
  for (int i = 0; i < 170000; i++) hash = (hash ^ (token + i)) * 16777619u;
  return hash;
}

static unsigned next_word(unsigned token) {
  pthread_mutex_lock(&tokenizer);
  unsigned word = detokenize(token);
  pthread_mutex_unlock(&tokenizer);
  return word;
}

static void load_weights(void *block, int number) {
  if (pread(weights_fd, block, BLOCK, (off_t)(number % WEIGHTS_BLOCKS) * BLOCK) != BLOCK) abort();
}

static void *serve(void *argument) {
  int worker = (int)(intptr_t)argument;
  name_thread(worker ? "decode-1" : "decode-0");
  float *block;
  if (posix_memalign((void **)&block, BLOCK, BLOCK * 4)) abort();
  memset(block, 0, BLOCK * 4);
  for (unsigned token = 0; now_ns() < end_ns; token++) {
    if (token % 6 == 0) {
      load_weights(block, (int)token * 7 + worker);
      nap_us(2000); /* no request is waiting */
    }
    sink = decode_token(block, 64 + (int)(token % 16) * 16);
    next_word(token);
  }
  return NULL;
}

static void *keep_log(void *unused) {
  name_thread("token-log");
  char line[BLOCK] = "served\n";
  while (now_ns() < end_ns) {
    nap_us(40000);
    if (pwrite(log_fd, line, sizeof line, 0) != sizeof line || fdatasync(log_fd)) abort();
  }
  return unused;
}

static void *embed(void *argument) {
  struct sched_param none = {0};
  float block[64 * HEAD] = {0};
  name_thread((intptr_t)argument ? "embed-1" : "embed-0");
  sched_setscheduler(0, SCHED_IDLE, &none);
  while (now_ns() < end_ns) sink = feed_forward(block, block);
  return NULL;
}

static int open_file(const char *folder, const char *name, int flags) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return open(path, flags | O_CREAT | O_RDWR, 0644);
}

int main(int count, char **arguments) {
  if (count != 3) {
    fprintf(stderr, "usage: token_server SECONDS FOLDER\n");
    return 2;
  }
  char zeros[BLOCK] = {0};
  weights_fd = open_file(arguments[2], "weights.bin", 0);
  for (int i = 0; i < WEIGHTS_BLOCKS; i++)
    if (weights_fd < 0 || write(weights_fd, zeros, BLOCK) != BLOCK) return perror("weights.bin"), 1;
  fsync(weights_fd);
  close(weights_fd);
  weights_fd = open_file(arguments[2], "weights.bin", O_DIRECT);
  if (weights_fd < 0 && errno == EINVAL) weights_fd = open_file(arguments[2], "weights.bin", 0); /* tmpfs */
  log_fd = open_file(arguments[2], "served.log", 0);
  if (weights_fd < 0 || log_fd < 0) return perror(arguments[2]), 1;
  end_ns = now_ns() + (int64_t)(atof(arguments[1]) * 1e9);
  pthread_t threads[WORKERS + EMBEDDERS + 1];
  for (intptr_t i = 0; i < WORKERS; i++) pthread_create(&threads[i], NULL, serve, (void *)i);
  for (intptr_t i = 0; i < EMBEDDERS; i++) pthread_create(&threads[WORKERS + i], NULL, embed, (void *)i);
  pthread_create(&threads[WORKERS + EMBEDDERS], NULL, keep_log, NULL);
  for (int i = 0; i <= WORKERS + EMBEDDERS; i++) pthread_join(threads[i], NULL);
  return 0;
}

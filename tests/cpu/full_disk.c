// A disk that is full from the Nth write on: loaded before the C library (LD_PRELOAD), it counts
// what is written or made below one folder.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static long left = -1; // writes that still fit; -1 is a disk without end
static long count;

// From now on so many writes below this folder fit; -1 for all. Returns how many there were.
long full_disk(const char *below, long fit) {
  strncpy(folder, below, sizeof folder - 1);
  long before = count;
  left = fit;
  count = 0;
  return before;
}

static int below(const char *path) {
  return folder[0] && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_ours(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, path, sizeof path - 1);
  path[size > 0 ? size : 0] = 0;
  return below(path);
}

// 0: it fits. 1: the first that does not. 2: the disk was full before.
static int is_full(int ours) {
  if (!ours) return 0;
  ++count;
  if (left < 0) return 0;
  if (left > 0) return --left, 0;
  return left = 0, 2;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE return errno = ENOSPC, -1

ssize_t write(int file, const void *data, size_t size) {
  int last = left == 1;
  if (is_full(is_ours(file))) REFUSE;
  // The last write that fits does so by half.
  return NEXT(write)(file, data, last && size > 1 && left == 0 && is_ours(file) ? size / 2 : size);
}
#define PWRITE(name, offset_type)                                        \
  ssize_t name(int file, const void *data, size_t size, offset_type at) { \
    if (is_full(is_ours(file))) REFUSE;                                   \
    return NEXT(name)(file, data, size, at);                              \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
ssize_t writev(int file, const struct iovec *parts, int n) {
  if (is_full(is_ours(file))) REFUSE;
  return NEXT(writev)(file, parts, n);
}
#define SYNC(name)                       \
  int name(int file) {                   \
    if (is_full(is_ours(file))) REFUSE;  \
    return NEXT(name)(file);             \
  }
SYNC(fsync)
SYNC(fdatasync)
#define OPEN(name)                                                             \
  int name(const char *path, int flags, ...) {                                 \
    va_list rest;                                                              \
    va_start(rest, flags);                                                     \
    mode_t mode = va_arg(rest, mode_t);                                        \
    va_end(rest);                                                              \
    if ((flags & O_CREAT) && access(path, F_OK) && is_full(below(path))) REFUSE; \
    return NEXT(name)(path, flags, mode);                                      \
  }
OPEN(open)
OPEN(open64)
int mkdir(const char *path, mode_t mode) {
  if (access(path, F_OK) && is_full(below(path))) REFUSE;
  return NEXT(mkdir)(path, mode);
}
int rename(const char *from, const char *to) {
  if (is_full(below(to))) REFUSE;
  return NEXT(rename)(from, to);
}

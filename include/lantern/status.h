/* What every function of Lantern's C interfaces answers. */
#ifndef LANTERN_STATUS_H
#define LANTERN_STATUS_H

#if defined(__GNUC__)
#define LANTERN_API __attribute__((visibility("default")))
#else
#define LANTERN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(modernize-use-using): C has no using */

typedef enum lantern_status {
  LANTERN_OK = 0,
  LANTERN_INVALID_ARGUMENT = 1, /* the call makes no sense */
  LANTERN_UNSUPPORTED = 2,      /* well-formed, but this build, machine or engine cannot do it */
  LANTERN_NOT_FOUND = 3,        /* a file, a tensor or a field is missing */
  LANTERN_CORRUPT = 4,          /* a file contradicts itself or its format */
  LANTERN_IO = 5,               /* the operating system refused */
  LANTERN_OUT_OF_MEMORY = 6,    /* memory does not suffice, or a queue is full */
  LANTERN_TIMEOUT = 7,          /* nothing came in the time that was given: call again */
  LANTERN_END = 8               /* nothing will come any more */
} lantern_status;

/* NOLINTEND(modernize-use-using) */
#ifdef __cplusplus
}
#endif
#endif /* LANTERN_STATUS_H */

#ifndef TAPAS_RANK_H
#define TAPAS_RANK_H

/* The library inside a training rank: it hands step records to the node's agent and takes orders
 * from it.
 *
 * Records go into a ring in shared memory (a file in a memory file system) and orders come from it.
 * tapas_rank_record() and tapas_rank_poll() make no system call, take no lock and never wait; when
 * no agent reads, records are dropped and counted. Training goes on whether an agent runs or not.
 *
 * One handle per rank, used by one thread at a time of the process that opened it (not by its
 * forks). Every function accepts a NULL handle and then does nothing, so a rank whose
 * tapas_rank_open() failed needs no special case. Functions return 0 or a positive result, or a
 * negative errno value. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAPAS_RANK_ABI 1
#define TAPAS_RANK_API __attribute__((visibility("default")))

typedef struct tapas_rank tapas_rank;

typedef struct {
  uint32_t abi;       /* TAPAS_RANK_ABI */
  uint32_t rank;      /* device slot of the cluster file */
  const char* job;    /* name; 1 to 253 of letters, digits, '.', '_', '-' */
  const char* node;   /* name of this node in the cluster file */
  uint64_t session;   /* the same in all ranks of one start of the job, new in the next start */
  uint8_t device[16]; /* UUID of the device */
  const char* dir;    /* NULL: $TAPAS_RANK_DIR, or /dev/shm. Must be the agent's rank_dir. */
  uint32_t
      ring_records; /* records that may wait for the agent; a power of two up to 65536, 0 = 1024 */
} tapas_rank_options;

enum { /* tapas_step_record.flags */
       TAPAS_FIRST_STEP = 1,
       TAPAS_COMPILE = 2,
       TAPAS_CHECKPOINT = 4,
       TAPAS_EVALUATION = 8,
       TAPAS_AFTER_SWITCH = 16
};

/* One finished step. Durations are microseconds and may saturate at UINT32_MAX. The library adds
 * who and under which plan: the epoch of the last ADOPT or COMMIT that was answered with ok. */
typedef struct {
  uint64_t step;
  uint64_t end_time_ns; /* job clock at the end of the step, since 1970; 0 = the host's clock now */
  uint64_t bytes_moved; /* sent by this rank, all groups */
  uint32_t flags;
  uint32_t microbatches; /* that this rank computed */
  uint32_t wall_us;
  uint32_t forward_us;  /* compute only, without any wait */
  uint32_t backward_us; /* compute only, recomputation included */
  uint32_t optimizer_us;
  uint32_t tp_collective_us; /* waiting for the group's last member included */
  uint32_t pp_wait_us;       /* waiting for neighbours' activations or gradients */
  uint32_t pp_transfer_us;   /* transfers without waiting */
  uint32_t dp_collective_us;
  uint32_t work_tokens;   /* of all microbatches, a work hint for packed batches; 0 = not given */
  uint32_t input_wait_us; /* waiting for the next batch before the step's first compute, part of
                           * wall_us and of no other field; 0 = none, or not given. The rank whose
                           * own loader is late reports it, not those that wait for that rank. */
} tapas_step_record;

/* What the rank is asked to do, between two steps. Each order is answered by one
 * tapas_rank_reply(). A newer order replaces one that was not polled yet. */
typedef enum {
  TAPAS_ADOPT = 0,   /* run plan `epoch` from the next step on; drop any switch under way */
  TAPAS_PREPARE = 1, /* check memory and groups of plan `epoch`; training goes on */
  TAPAS_ARM = 2,     /* finish step `at_step`, hold, then answer; refuse when it is past */
  TAPAS_TRANSFER =
      3,            /* while holding: fetch what plan `epoch` needs, keep what the old one needs */
  TAPAS_COMMIT = 4, /* go on under plan `epoch` */
  TAPAS_ABORT = 5   /* go on under the old plan, throw away what was prepared or fetched */
} tapas_order;

typedef struct {
  uint32_t order; /* tapas_order */
  uint32_t reserved;
  uint64_t from_epoch;
  uint64_t epoch;
  uint64_t at_step;
} tapas_command;

typedef struct {
  uint32_t order;     /* of the command that this answers */
  uint32_t ok;        /* 0: this rank cannot, see reason */
  uint64_t epoch;     /* of the command that this answers */
  uint64_t step;      /* last finished step */
  uint64_t bytes;     /* received in TRANSFER */
  double seconds;     /* time that it took */
  const char* reason; /* why not, at most 159 bytes are kept; NULL with ok */
} tapas_reply;

/* Makes this rank visible to the agent. -EBUSY: another process has this rank of this job open;
 * -EINVAL: a name, size or ABI version is wrong; else the error of the file system. */
TAPAS_RANK_API int tapas_rank_open(const tapas_rank_options* options, tapas_rank** rank);

/* 1 when the record was taken, 0 when it was dropped. */
TAPAS_RANK_API int tapas_rank_record(tapas_rank* rank, const tapas_step_record* record);

/* 1 when there is an order that was not seen before, 0 when not. An order of a daemon with a lower
 * term than one before is refused here: the rank never sees it. */
TAPAS_RANK_API int tapas_rank_poll(tapas_rank* rank, tapas_command* command);

TAPAS_RANK_API int tapas_rank_reply(tapas_rank* rank, const tapas_reply* reply);

/* Text of the plan of `epoch` (`tapas.plan/1`, not terminated): its length, of which at most `size`
 * bytes were copied. Readable from ADOPT or PREPARE of that epoch on. Reads a file. */
TAPAS_RANK_API int64_t tapas_rank_plan(const tapas_rank* rank, uint64_t epoch, char* buffer,
                                       size_t size);

/* Epoch of the plan that records are written under; 0 = none yet. */
TAPAS_RANK_API uint64_t tapas_rank_epoch(const tapas_rank* rank);

/* Records dropped since tapas_rank_open(). */
TAPAS_RANK_API uint64_t tapas_rank_dropped(const tapas_rank* rank);

/* The agent still gets the records written before. */
TAPAS_RANK_API void tapas_rank_close(tapas_rank* rank);

#ifdef __cplusplus
}
#endif

#endif

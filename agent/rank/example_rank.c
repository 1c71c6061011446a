/* The smallest training rank that works with TAPAS: a loop of steps that sleeps instead of
 * computing. It shows where a real one calls libtapas_rank: a record after every step, orders
 * between two steps. */

#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef TAPAS_IN_TREE
#include "agent/rank/tapas_rank.h"
#else
#include <tapas_rank.h>
#endif

static volatile sig_atomic_t stop_requested = 0;

static void on_signal(int signal_number) {
  (void)signal_number;
  stop_requested = 1;
}

static void sleep_ms(unsigned long ms) {
  const struct timespec wait = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L};
  nanosleep(&wait, NULL);
}

struct loop {
  tapas_rank* rank;
  uint64_t finished; /* last finished step */
  uint64_t hold_at;  /* step to hold after, for epoch hold_epoch */
  uint64_t hold_epoch;
  int will_hold;
  int holding;
  uint32_t flags; /* of the next record */
};

static void answer(struct loop* loop, uint32_t order, uint64_t epoch, const char* refusal) {
  tapas_reply reply;
  memset(&reply, 0, sizeof(reply));
  reply.order = order;
  reply.ok = refusal == NULL;
  reply.epoch = epoch;
  reply.step = loop->finished;
  reply.reason = refusal;
  tapas_rank_reply(loop->rank, &reply);
}

static void go_on(struct loop* loop) {
  loop->will_hold = 0;
  loop->holding = 0;
}

static void obey(struct loop* loop, const tapas_command* command) {
  const char* refusal = NULL;
  switch (command->order) {
    case TAPAS_ADOPT:
    case TAPAS_COMMIT:
      go_on(loop);
      loop->flags = TAPAS_AFTER_SWITCH;
      printf("step %" PRIu64 ": runs plan epoch %" PRIu64 " from now on\n", loop->finished,
             command->epoch);
      break;
    case TAPAS_PREPARE: {
      const int64_t bytes = tapas_rank_plan(loop->rank, command->epoch, NULL, 0);
      printf("step %" PRIu64 ": plan epoch %" PRIu64 " of %" PRId64 " bytes is readable\n",
             loop->finished, command->epoch, bytes);
      refusal = bytes > 0 ? NULL : "cannot read the plan";
      break;
    }
    case TAPAS_ARM:
      if (command->at_step < loop->finished) {
        refusal = "the step to hold at is past";
        break;
      }
      loop->will_hold = 1;
      loop->hold_at = command->at_step;
      loop->hold_epoch = command->epoch;
      return; /* Answered when it holds. */
    case TAPAS_TRANSFER:
      refusal = loop->holding ? NULL : "not holding";
      break;
    case TAPAS_ABORT:
      go_on(loop);
      printf("step %" PRIu64 ": switch to epoch %" PRIu64 " aborted\n", loop->finished,
             command->epoch);
      break;
    default:
      refusal = "unknown order";
      break;
  }
  answer(loop, command->order, command->epoch, refusal);
}

static void train_one_step(struct loop* loop, unsigned long step_ms) {
  tapas_step_record record;
  sleep_ms(step_ms);
  ++loop->finished;
  memset(&record, 0, sizeof(record));
  record.step = loop->finished;
  record.flags = loop->flags;
  record.microbatches = 1;
  record.wall_us = (uint32_t)(step_ms * 1000);
  record.forward_us = record.wall_us / 3;
  record.backward_us = record.wall_us - record.forward_us;
  tapas_rank_record(loop->rank, &record);
  loop->flags = 0;
}

static unsigned long number(const char* text) {
  char* end = NULL;
  const unsigned long value = strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0') {
    fprintf(stderr, "tapas-example-rank: %s is not a number\n", text);
    exit(2);
  }
  return value;
}

static void usage(FILE* to) {
  fprintf(to,
          "Usage: tapas-example-rank [--job NAME] [--node NAME] [--rank N] [--session N]\n"
          "                          [--dir DIR] [--steps N] [--step-ms N]\n"
          "A training rank that only sleeps. Obeys the orders of the node's tapas-agent.\n"
          "Example: tapas-example-rank --job demo --node n0 --rank 0 --steps 100 --step-ms 50\n");
}

int main(int argc, char** argv) {
  tapas_rank_options options = {.abi = TAPAS_RANK_ABI, .job = "demo", .node = "n0", .session = 1};
  struct loop loop = {.flags = TAPAS_FIRST_STEP};
  unsigned long steps = 100;
  unsigned long step_ms = 50;
  int i;
  for (i = 1; i < argc; ++i) {
    const char* const key = argv[i];
    if (strcmp(key, "--help") == 0) {
      usage(stdout);
      return 0;
    }
    if (i + 1 == argc) {
      usage(stderr);
      return 2;
    }
    const char* const value = argv[++i];
    if (strcmp(key, "--job") == 0) {
      options.job = value;
    } else if (strcmp(key, "--node") == 0) {
      options.node = value;
    } else if (strcmp(key, "--rank") == 0) {
      options.rank = (uint32_t)number(value);
    } else if (strcmp(key, "--session") == 0) {
      options.session = number(value);
    } else if (strcmp(key, "--dir") == 0) {
      options.dir = value;
    } else if (strcmp(key, "--steps") == 0) {
      steps = number(value);
    } else if (strcmp(key, "--step-ms") == 0) {
      step_ms = number(value);
    } else {
      usage(stderr);
      return 2;
    }
  }
  memcpy(options.device, &options.rank, sizeof(options.rank));
  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGTERM, on_signal);
  signal(SIGINT, on_signal);

  const int error = tapas_rank_open(&options, &loop.rank);
  if (error != 0) {
    fprintf(stderr, "tapas-example-rank: trains without TAPAS: %s\n", strerror(-error));
  }
  printf("rank %u of job %s on node %s\n", options.rank, options.job, options.node);
  while (!stop_requested && (loop.holding || loop.finished < steps)) {
    tapas_command command;
    if (tapas_rank_poll(loop.rank, &command)) {
      obey(&loop, &command);
    }
    if (loop.will_hold && loop.finished >= loop.hold_at) {
      loop.will_hold = 0;
      loop.holding = 1;
      printf("step %" PRIu64 ": holds for the switch to epoch %" PRIu64 "\n", loop.finished,
             loop.hold_epoch);
      answer(&loop, TAPAS_ARM, loop.hold_epoch, NULL);
    }
    if (loop.holding) {
      sleep_ms(1);
    } else {
      train_one_step(&loop, step_ms);
    }
  }
  printf("%" PRIu64 " steps, %" PRIu64 " records dropped, plan epoch %" PRIu64 "\n", loop.finished,
         tapas_rank_dropped(loop.rank), tapas_rank_epoch(loop.rank));
  tapas_rank_close(loop.rank);
  return 0;
}

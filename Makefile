# SPDX-License-Identifier: Apache-2.0
#
# One makefile for everything.  The targets that people use:
#
#   make              programs, libraries and examples, under build/
#   make quickstart   install what the build needs, build, train on 2 ranks
#   make check        install what the tests need too, then run every test
#   make install      DESTDIR= PREFIX=/usr/local LIBDIR=PREFIX/lib
#   make help         the rest
#
# Sources are listed by folder below.  BUILD=dir builds elsewhere, WERROR=1
# makes warnings errors, SAN=address|thread adds sanitizers, STATIC=1 makes an
# hvdrun that runs where there is no library.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
VERSION := 0.1.0
SOVERSION := 0

CC ?= cc
AR ?= ar
# With these sanitizers, compiling at -O2 costs more than it saves the tests.
OPT ?= $(if $(filter address thread,$(SAN)),-O1,-O2)
PKG_CONFIG ?= pkg-config

# ---- Sources ----------------------------------------------------------

BASE_SRC := \
	lib/base/alloc.c \
	lib/base/buf.c \
	lib/base/env.c \
	lib/base/error.c \
	lib/base/idle_knobs.c \
	lib/base/log.c \
	lib/base/quote.c \
	lib/base/strv.c \
	lib/base/sys/clock.c \
	lib/base/sys/linkage.c \
	lib/base/sys/netaddr.c \
	lib/base/sys/trace_file.c \
	lib/base/sys/trust.c \
	lib/base/text.c
HOSTS_SRC := \
	lib/hosts/batch/allocation.c \
	lib/hosts/batch/batch_files.c \
	lib/hosts/batch/batch_flux.c \
	lib/hosts/batch/batch_slurm.c \
	lib/hosts/going.c \
	lib/hosts/hostfold.c \
	lib/hosts/hostlist.c \
	lib/hosts/hostmerge.c \
	lib/hosts/hostparse.c \
	lib/hosts/slot_plan.c
PROTOCOL_SRC := \
	lib/protocol/agent_hash.c \
	lib/protocol/control/control.c \
	lib/protocol/control/control_bytes.c \
	lib/protocol/control/control_counts.c \
	lib/protocol/control/control_generation.c \
	lib/protocol/control/control_json.c \
	lib/protocol/control/control_json_write.c \
	lib/protocol/control/control_route.c \
	lib/protocol/control/control_stall.c \
	lib/protocol/frame.c \
	lib/protocol/pmix_wire.c \
	lib/protocol/query.c \
	lib/protocol/rendezvous.c \
	lib/protocol/segment.c \
	lib/protocol/segment_fd.c \
	lib/protocol/status.c \
	lib/protocol/wire.c \
	lib/protocol/worker.c \
	lib/protocol/worker_rdv.c \
	lib/protocol/worker_stats.c
RENDEZVOUS_SRC := \
	lib/rendezvous/fence.c \
	lib/rendezvous/store.c
# The local host, and hosts that are reached with ssh or another command.
TRANSPORT_SRC := \
	lib/remote/agent_image.c \
	lib/remote/bootstrap.c \
	lib/remote/launchers.c \
	lib/remote/remote.c \
	lib/remote/remote_config.c \
	lib/remote/remote_host.c \
	lib/remote/remote_proxy.c \
	lib/remote/remote_stream.c \
	lib/remote/rsh.c \
	lib/remote/srun.c \
	lib/ssh/openssh.c \
	lib/ssh/ssh_config.c \
	lib/ssh/ssh_config_check.c \
	lib/ssh/ssh_expand.c \
	lib/ssh/ssh_user.c \
	lib/transport/child.c \
	lib/transport/command.c \
	lib/transport/local.c \
	lib/transport/localname.c \
	lib/transport/transport.c
# Keys and known hosts, which need libcrypto: for the plug-in and its tests.
SSH_SRC := \
	lib/ssh/keys/passphrase.c \
	lib/ssh/keys/ssh_add.c \
	lib/ssh/keys/ssh_agent.c \
	lib/ssh/keys/ssh_key.c \
	lib/ssh/keys/ssh_pem.c \
	lib/ssh/known_hosts.c
# A plug-in of hvdrun, which needs libssh2.
SSH2_SRC := \
	lib/ssh/ssh2.c \
	lib/ssh/ssh2_auth.c \
	lib/ssh/ssh2_connect.c \
	lib/ssh/ssh2_hostkey.c \
	lib/ssh/ssh2_keys.c \
	lib/ssh/ssh2_session.c \
	lib/ssh/ssh2_task.c
AGENT_SRC := \
	lib/agent/agent.c \
	lib/agent/agent_state.c \
	lib/agent/agent_trace.c \
	lib/agent/beat.c \
	lib/agent/detach.c \
	lib/agent/elastic/agent_generation.c \
	lib/agent/elastic/members.c \
	lib/agent/endpoint.c \
	lib/agent/endpoint_rdv.c \
	lib/agent/epoch.c \
	lib/agent/guardian.c \
	lib/agent/horovod/horovod_rdv.c \
	lib/agent/horovod/horovod_store.c \
	lib/agent/horovod/http.c \
	lib/agent/horovod/peer_uid.c \
	lib/agent/link.c \
	lib/agent/machine/cgroup.c \
	lib/agent/machine/cpus.c \
	lib/agent/machine/fabric.c \
	lib/agent/machine/gpu_list.c \
	lib/agent/machine/ld_cache.c \
	lib/agent/port.c \
	lib/agent/query/account.c \
	lib/agent/query/agent_query.c \
	lib/agent/query/capture.c \
	lib/agent/query/jobend.c \
	lib/agent/query/jobscan.c \
	lib/agent/query/libfind.c \
	lib/agent/query/progcheck.c \
	lib/agent/query/query_doctor.c \
	lib/agent/query/query_jobs.c \
	lib/agent/rank/cause.c \
	lib/agent/rank/death.c \
	lib/agent/rank/dying.c \
	lib/agent/rank/host_env.c \
	lib/agent/rank/launch.c \
	lib/agent/rank/program.c \
	lib/agent/rank/pump.c \
	lib/agent/rank/rank_io.c \
	lib/agent/rank/spawn.c \
	lib/agent/rank/tree.c \
	lib/agent/rdv_relay.c \
	lib/agent/route/interfaces.c \
	lib/agent/route/route.c \
	lib/agent/route/route_auth.c \
	lib/agent/route/route_dial.c \
	lib/agent/route/route_measure.c \
	lib/agent/route/route_orders.c \
	lib/agent/route/route_serve.c \
	lib/agent/route/route_talk.c \
	lib/agent/route/route_try.c \
	lib/agent/signals.c \
	lib/agent/stall/agent_counts.c \
	lib/agent/stall/agent_stall.c \
	lib/agent/stall/stack.c \
	lib/agent/trace_dir.c \
	lib/agent/wireup/agent_wireup.c \
	lib/agent/wireup/elf_file.c \
	lib/agent/wireup/needed_libs.c \
	lib/agent/wireup/pmi1/pmi1.c \
	lib/agent/wireup/pmi1/pmi1_kvs.c \
	lib/agent/wireup/pmi1/pmi1_mapping.c \
	lib/agent/wireup/pmi1/pmi1_server.c \
	lib/agent/wireup/pmix/mca_params.c \
	lib/agent/wireup/pmix/pmix.c \
	lib/agent/wireup/pmix/pmix_env.c \
	lib/agent/wireup/pmix/pmix_image.c \
	lib/agent/wireup/pmix/pmix_modex.c \
	lib/agent/wireup/pmix/pmix_server.c \
	lib/agent/wireup/program_needs.c \
	lib/agent/wireup/python_mpi.c \
	lib/agent/wireup/regular.c \
	lib/agent/wireup/wireup.c \
	lib/agent/wireup/wireup_dir.c \
	lib/agent/wireup/wireup_hosts.c
JOB_SRC := \
	lib/job/agent_link.c \
	lib/job/discovery/discoverer.c \
	lib/job/discovery/discovery.c \
	lib/job/discovery/script.c \
	lib/job/elastic/apart.c \
	lib/job/elastic/generations.c \
	lib/job/elastic/job_apart.c \
	lib/job/elastic/job_elastic.c \
	lib/job/elastic/job_grow.c \
	lib/job/elastic/job_grow_routes.c \
	lib/job/elastic/job_leave.c \
	lib/job/elastic/job_lost.c \
	lib/job/elastic/job_preempt.c \
	lib/job/elastic/job_restart.c \
	lib/job/elastic/job_withdraw.c \
	lib/job/elastic/preempt.c \
	lib/job/elastic/restarts.c \
	lib/job/elastic/strikes.c \
	lib/job/job.c \
	lib/job/job_beat.c \
	lib/job/job_deadline.c \
	lib/job/job_end.c \
	lib/job/job_frames.c \
	lib/job/job_host.c \
	lib/job/job_rendezvous.c \
	lib/job/job_same.c \
	lib/job/job_signal.c \
	lib/job/job_state.c \
	lib/job/job_sweep.c \
	lib/job/job_wait.c \
	lib/job/output/host_log.c \
	lib/job/output/input.c \
	lib/job/output/job_io.c \
	lib/job/output/lines.c \
	lib/job/output/outdir.c \
	lib/job/output/output.c \
	lib/job/output/progress.c \
	lib/job/output/stdio.c \
	lib/job/output/tail_view.c \
	lib/job/output/tty_text.c \
	lib/job/record/html_script.c \
	lib/job/record/html_statistics.c \
	lib/job/record/html_style.c \
	lib/job/record/html_timeline.c \
	lib/job/record/job_record.c \
	lib/job/record/record_data.c \
	lib/job/record/record_file.c \
	lib/job/record/record_html.c \
	lib/job/record/record_json.c \
	lib/job/record/record_junit.c \
	lib/job/record/record_text.c \
	lib/job/report.c \
	lib/job/route/job_routes.c \
	lib/job/route/route_choice.c \
	lib/job/route/route_filter.c \
	lib/job/route/routes.c \
	lib/job/route/routes_result.c \
	lib/job/serve/job_counts.c \
	lib/job/serve/job_serve.c \
	lib/job/serve/metrics.c \
	lib/job/serve/serve_address.c \
	lib/job/serve/serve_request.c \
	lib/job/serve/status_line.c \
	lib/job/stall/culprit.c \
	lib/job/stall/job_stall.c \
	lib/job/stall/stall_find.c \
	lib/job/stall/stall_inspector.c \
	lib/job/stall/stall_report.c \
	lib/job/survey.c \
	lib/job/trace/job_timeline.c \
	lib/job/trace/job_trace.c \
	lib/job/trace/offset.c \
	lib/job/trace/stats_text.c \
	lib/job/worker_env.c
# A plug-in of hvdrun, which needs libmicrohttpd.
SERVE_SRC := \
	lib/job/serve/serve_mhd.c
HVDRUN_SRC := \
	cmd/hvdrun/check_build.c \
	cmd/hvdrun/compat.c \
	cmd/hvdrun/dryrun.c \
	cmd/hvdrun/growth.c \
	cmd/hvdrun/host_plan.c \
	cmd/hvdrun/libdirs.c \
	cmd/hvdrun/main.c \
	cmd/hvdrun/main_loop.c \
	cmd/hvdrun/mpi/mpi_command.c \
	cmd/hvdrun/mpi/mpi_find.c \
	cmd/hvdrun/mpi/mpi_mpich.c \
	cmd/hvdrun/mpi/mpi_openmpi.c \
	cmd/hvdrun/mpi/mpirun.c \
	cmd/hvdrun/options/config.c \
	cmd/hvdrun/options/config_json.c \
	cmd/hvdrun/options/config_tree.c \
	cmd/hvdrun/options/config_yaml.c \
	cmd/hvdrun/options/env_file.c \
	cmd/hvdrun/options/options.c \
	cmd/hvdrun/options/options_apply.c \
	cmd/hvdrun/options/options_complete.c \
	cmd/hvdrun/options/options_foreign.c \
	cmd/hvdrun/options/options_help.c \
	cmd/hvdrun/options/options_table.c \
	cmd/hvdrun/options/readfile.c \
	cmd/hvdrun/probe.c \
	cmd/hvdrun/reach.c \
	cmd/hvdrun/run_job.c \
	cmd/hvdrun/terminal.c \
	cmd/hvdrun/tools/doctor.c \
	cmd/hvdrun/tools/doctor_checks.c \
	cmd/hvdrun/tools/doctor_net.c \
	cmd/hvdrun/tools/findings.c \
	cmd/hvdrun/tools/jobs.c \
	cmd/hvdrun/tools/jobs_text.c \
	cmd/hvdrun/tools/table.c \
	cmd/hvdrun/tools/tool.c
HVD_AGENT_SRC := \
	cmd/hvd-agent/main.c
# The agent carries this program in itself.
HVD_PMIX_SRC := \
	cmd/hvd-pmix/keys.c \
	cmd/hvd-pmix/library.c \
	cmd/hvd-pmix/main.c \
	cmd/hvd-pmix/server.c \
	cmd/hvd-pmix/upcalls.c
HVD_BENCH_SRC := \
	cmd/hvd-bench/bench_cuda.c \
	cmd/hvd-bench/bench_memory.c \
	cmd/hvd-bench/bench_options.c \
	cmd/hvd-bench/bench_world.c \
	cmd/hvd-bench/calls.c \
	cmd/hvd-bench/data.c \
	cmd/hvd-bench/main.c \
	cmd/hvd-bench/measure.c \
	cmd/hvd-bench/raw.c \
	cmd/hvd-bench/resnet50.c \
	cmd/hvd-bench/work.c
RUNTIME_SRC := \
	runtime/core/api/call.c \
	runtime/core/api/call_arguments.c \
	runtime/core/api/call_shapes.c \
	runtime/core/api/collective.c \
	runtime/core/api/completion.c \
	runtime/core/api/elastic.c \
	runtime/core/api/feature.c \
	runtime/core/api/init.c \
	runtime/core/api/mpi_set.c \
	runtime/core/api/process_sets.c \
	runtime/core/api/shard_deal.c \
	runtime/core/api/shard_map.c \
	runtime/core/api/shard_sync.c \
	runtime/core/api/shards.c \
	runtime/core/api/state.c \
	runtime/core/api/trace.c \
	runtime/core/sched/controller.c \
	runtime/core/sched/controller_tables.c \
	runtime/core/sched/engine.c \
	runtime/core/sched/engine_alone.c \
	runtime/core/sched/engine_launch.c \
	runtime/core/sched/engine_queue.c \
	runtime/core/sched/engine_stall.c \
	runtime/core/sched/join.c \
	runtime/core/sched/negotiate.c \
	runtime/core/sched/plan.c \
	runtime/core/sched/record.c \
	runtime/core/sched/request.c \
	runtime/core/sched/run.c \
	runtime/core/sched/shapes.c \
	runtime/core/set/connect.c \
	runtime/core/set/device.c \
	runtime/core/set/mpi_context.c \
	runtime/core/set/outcome.c \
	runtime/core/set/provider.c \
	runtime/core/set/set.c \
	runtime/core/set/set_change.c \
	runtime/core/set/set_keep.c \
	runtime/core/set/set_members.c \
	runtime/core/set/words.c \
	runtime/core/set/world_set.c \
	runtime/core/tune/autotune.c \
	runtime/core/tune/tuner.c \
	runtime/core/world/agent_call.c \
	runtime/core/world/agent_client.c \
	runtime/core/world/blame.c \
	runtime/core/world/context.c \
	runtime/core/world/hosts.c \
	runtime/core/world/knobs.c \
	runtime/core/world/launcher.c \
	runtime/core/world/memory.c \
	runtime/core/world/message.c \
	runtime/core/world/plugin_load.c \
	runtime/core/world/segment_map.c \
	runtime/core/world/topology.c \
	runtime/plane/adasum.c \
	runtime/plane/execute.c \
	runtime/plane/hier/hier.c \
	runtime/plane/hier/hier_agree.c \
	runtime/plane/hier/hier_alltoall.c \
	runtime/plane/hier/hier_gather.c \
	runtime/plane/hier/hier_lanes.c \
	runtime/plane/hier/hier_rows.c \
	runtime/plane/hier/hier_watch.c \
	runtime/plane/hier/map.c \
	runtime/plane/kernels/cast.c \
	runtime/plane/kernels/reduce.c \
	runtime/plane/kernels/reduce_portable.c \
	runtime/plane/neutral.c \
	runtime/plane/op.c \
	runtime/plane/parts.c \
	runtime/plane/self.c \
	runtime/plane/shm/arena.c \
	runtime/plane/shm/shm.c \
	runtime/plane/shm/shm_allreduce.c \
	runtime/plane/shm/shm_alltoall.c \
	runtime/plane/shm/shm_domains.c \
	runtime/plane/shm/shm_gather.c \
	runtime/plane/shm/shm_scatter.c \
	runtime/plane/shm/shm_wait.c \
	runtime/plane/site.c \
	runtime/plane/tcp/tcp.c \
	runtime/plane/tcp/tcp_auth.c \
	runtime/plane/tcp/tcp_exchange.c \
	runtime/plane/tcp/tcp_head.c \
	runtime/plane/tcp/tcp_mac.c \
	runtime/plane/tcp/tcp_measure.c \
	runtime/plane/tcp/tcp_model.c \
	runtime/plane/tcp/tcp_setup.c \
	runtime/plane/tcp/tcp_socket.c \
	runtime/plane/tcp/tcp_steps.c \
	runtime/plane/tcp/tcp_stream.c \
	runtime/plane/types.c \
	runtime/trace/stall.c \
	runtime/trace/stats.c \
	runtime/trace/timeline.c \
	runtime/trace/timeline_lanes.c \
	runtime/trace/timeline_text.c
# Reduction kernels for wider instruction sets; chosen at run time.
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
RUNTIME_SRC += \
	runtime/plane/kernels/reduce_avx2.c \
	runtime/plane/kernels/reduce_avx512.c
endif
MPI_PLUGIN_SRC := \
	runtime/plugins/mpi/alltoall.c \
	runtime/plugins/mpi/gather.c \
	runtime/plugins/mpi/header.c \
	runtime/plugins/mpi/leave.c \
	runtime/plugins/mpi/mpi_call.c \
	runtime/plugins/mpi/mpi_error.c \
	runtime/plugins/mpi/mpi_plane.c \
	runtime/plugins/mpi/mpi_reduce.c \
	runtime/plugins/mpi/mpi_types.c \
	runtime/plugins/mpi/mpi_world.c \
	runtime/plugins/mpi/peer_counts.c \
	runtime/plugins/mpi/ranks.c \
	runtime/plugins/mpi/rounds.c \
	runtime/plugins/mpi/start.c \
	runtime/plugins/mpi/wait.c
# It has its own copy of these.
MPI_PLUGIN_OWN := $(filter runtime/plane/op.c runtime/plane/parts.c \
	runtime/plane/self.c runtime/plane/types.c runtime/plane/kernels/%, \
	$(RUNTIME_SRC))
# Beside runtime/plugins/nccl/kernels.cu, which nvcc compiles.
NCCL_PLUGIN_SRC := \
	runtime/plugins/nccl/base_op.c \
	runtime/plugins/nccl/comm.c \
	runtime/plugins/nccl/fuse.c \
	runtime/plugins/nccl/nccl.c \
	runtime/plugins/nccl/nccl_buffers.c \
	runtime/plugins/nccl/nccl_collectives.c \
	runtime/plugins/nccl/nccl_cuda.c \
	runtime/plugins/nccl/nccl_failure.c \
	runtime/plugins/nccl/nccl_launch.c \
	runtime/plugins/nccl/nccl_plane.c \
	runtime/plugins/nccl/nccl_plugin.c \
	runtime/plugins/nccl/nccl_reduce.c \
	runtime/plugins/nccl/staged.c \
	runtime/plugins/nccl/timing.c \
	runtime/plugins/nccl/watch.c
NCCL_PLUGIN_OWN := $(MPI_PLUGIN_OWN)

PYTHON_SRC := \
	python/ext/args.c \
	python/ext/block.c \
	python/ext/dtype.c \
	python/ext/generation.c \
	python/ext/issue_gather.c \
	python/ext/issue_group.c \
	python/ext/issue_reduce.c \
	python/ext/module.c \
	python/ext/notify.c \
	python/ext/py_request.c \
	python/ext/py_work.c \
	python/ext/tensor.c \
	python/ext/world.c

EXAMPLES := train_digits train_digits_elastic anomaly_autoencoder
EXAMPLE_DATA := $(addprefix $(BUILD)/examples/data/, \
	digits.csv breast_cancer.csv)

UNIT_TESTS := \
	account \
	adasum \
	again \
	agent \
	agent_beat \
	agent_call \
	agent_image \
	agent_launch \
	agent_link \
	agent_route \
	agent_stall \
	agent_state \
	alloc \
	allocation \
	allreduce \
	apart \
	arena \
	autotune \
	bench \
	bootstrap \
	buf \
	cast \
	cause \
	cgroup \
	check_build \
	clock \
	collectives \
	command \
	config \
	control \
	control_generation \
	control_launch \
	control_route \
	control_stall \
	control_wire \
	cpus \
	culprit \
	detach \
	discoverer \
	discovery \
	doctor \
	done \
	dryrun \
	dying \
	elastic \
	elastic_ops \
	elastic_source \
	endpoint \
	engine \
	env \
	env_file \
	epoch \
	error \
	failure \
	findings \
	frame \
	gather_alloc \
	generations \
	generations_leave \
	generations_model \
	going \
	gpu \
	guardian \
	hier \
	host_env \
	host_log \
	host_plan \
	hostfold \
	hostlist \
	hosts \
	hosts_failure \
	hosts_sets \
	http \
	init \
	input \
	interfaces \
	job \
	job_elastic \
	job_grow \
	job_hosts \
	job_leave \
	job_record \
	job_same \
	job_state \
	job_timeline \
	jobs \
	join \
	launch \
	launchers \
	lines \
	localname \
	log \
	map \
	mca_params \
	members \
	mismatch \
	mpi_command \
	negotiate \
	netaddr \
	neutral \
	offset \
	openssh \
	options \
	options_elastic \
	options_table \
	order \
	outdir \
	output \
	peer_uid \
	plan \
	pmi1 \
	pmix_modex \
	pmix_wire \
	port \
	probe \
	process_sets \
	program \
	program_needs \
	progress \
	pump \
	query \
	record \
	reduce \
	remote \
	rendezvous \
	report \
	restarts \
	route \
	route_auth \
	route_choice \
	route_filter \
	routes \
	routes_net \
	rsh \
	script \
	segment \
	serve \
	set_keep \
	shapes \
	shard_map \
	shards \
	shards_deaths \
	shm \
	shm_domains \
	shm_exchange \
	shm_order \
	site \
	spawn \
	srun \
	ssh_config \
	stall \
	stall_report \
	state \
	stats \
	store \
	strikes \
	strv \
	subset \
	survey \
	tail_view \
	tcp \
	tcp_auth \
	tcp_changed \
	tcp_collectives \
	tcp_mac \
	tcp_model \
	tcp_setup \
	text \
	timeline \
	trace_stall \
	transport_local \
	tree \
	trust \
	tty_text \
	tuner \
	wait \
	wire \
	wireup \
	worker \
	worker_env \
	worker_rdv \
	worker_stats
SYSTEM_PROGS := \
	actor \
	coll \
	differ \
	disagree \
	elastic_shards \
	elastic_steps \
	evil_agent \
	gather_alloc \
	hold_end \
	horovod_rank \
	members_rank \
	mpi_fault \
	mpi_plane_rank \
	poke \
	prop \
	pty \
	rdv \
	secret \
	stall_rank \
	storm
FUZZERS := \
	agent \
	agree \
	allocation \
	bootstrap \
	config \
	discovery \
	endpoint \
	env \
	env_file \
	frame \
	going \
	hostfile \
	http \
	job \
	lines \
	mca_params \
	mpi_counts \
	openssh \
	plane \
	pmi1 \
	pmix_wire \
	program \
	query \
	rendezvous \
	route \
	ssh_config \
	stall \
	tail \
	tcp \
	tcp_setup \
	tcp_steps \
	timeline

comma := ,

# ---- Flags ------------------------------------------------------------

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wvla -Wformat=2 -Wnull-dereference
ifeq ($(WERROR),1)
WARN += -Werror
endif
# Linked statically, so that libhvd and the agent need no library.
SODIUM_A := $(addsuffix /libsodium.a,$(shell $(PKG_CONFIG) \
	--variable=libdir libsodium 2>/dev/null))
# The first flag in $(1), if the compiler accepts them all for this processor.
cc_takes = $(shell echo 'int main(void) { return 0; }' | $(CC) -Werror $(1) \
	-x c -o /dev/null - 2>/dev/null && echo '$(firstword $(1))')
# With SOURCE_DATE_EPOCH, as packages are built, debug information does not
# depend on the folder, so that any build of this source gives the same bytes.
DEBUG := -g$(if $(SOURCE_DATE_EPOCH), -ffile-prefix-map=$(CURDIR)=.)
HARDEN := -fstack-protector-strong \
	$(call cc_takes,-fstack-clash-protection -c) \
	$(call cc_takes,-fcf-protection -c)
ifeq ($(SAN),)
HARDEN += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
# Static programs are position-independent, and so loaded at another address
# each time, where libc and the agent's libraries have code for that (PIC).
STATIC_LINK := $(firstword $(call cc_takes,-static-pie -fPIE \
	-Wl$(comma)-u$(comma)uv_run$(comma)-u$(comma)json_loads \
	-Wl$(comma)-u$(comma)sodium_init -l:libuv_a.a -l:libjansson.a \
	$(SODIUM_A) -ldl) -static)
else
# A sanitizer's report has functions and lines, but no variables, so half of the
# debugging data will do.
DEBUG := -g1
SANFLAGS := -fsanitize=$(SAN) -fno-omit-frame-pointer
ifeq ($(SAN),address)
SANFLAGS += -fsanitize=undefined
endif
ifneq ($(shell $(CC) -dM -E -x c /dev/null | grep -w __clang__),)
# As with gcc, tests see by a macro what they are compiled for, and ASan's
# runtime is a library, so that Python can load libhvd.
SANFLAGS += $(if $(filter address,$(SAN)),-D__SANITIZE_ADDRESS__) \
	$(if $(filter thread,$(SAN)),-D__SANITIZE_THREAD__)
ifeq ($(SAN),address)
SAN_LDFLAGS := -shared-libasan \
	-Wl,-rpath,$(shell $(CC) -print-runtime-dir)
endif
else
# Warnings are for the other builds: the checks that sanitizers add make gcc
# warn of what cannot happen.
WARN :=
endif
ifeq ($(SAN),fuzzer)
SANFLAGS := -fsanitize=fuzzer-no-link,address,undefined
endif
ifneq ($(SAN),thread)
SANFLAGS += -fno-sanitize-recover=undefined
endif
endif

DEPS_CFLAGS := $(shell $(PKG_CONFIG) --cflags libuv jansson yaml-0.1 \
	2>/dev/null)
UV_LIBS := $(shell $(PKG_CONFIG) --libs libuv 2>/dev/null)
JANSSON_LIBS := $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null)
YAML_LIBS := $(shell $(PKG_CONFIG) --libs yaml-0.1 2>/dev/null)
SSH2_LIBS := $(shell $(PKG_CONFIG) --libs libssh2 libcrypto 2>/dev/null)
# A plug-in is built if its libraries are there, or by WITH_X=auto|yes|no.
WITH_SSH2 ?= auto
ifneq ($(or $(filter yes,$(WITH_SSH2)),$(and $(filter auto,$(WITH_SSH2)),\
		$(SSH2_LIBS))),)
PLUGINS += $(BUILD)/lib/hvd/transport-ssh2.so
SSH_TESTS := known_hosts ssh_add ssh_agent ssh_key
SSH2_TESTS := ssh2 ssh2_auth ssh2_faults ssh2_hosts ssh2_judge
UNIT_TESTS += $(SSH_TESTS) $(SSH2_TESTS)
SSH_FUZZERS := known_hosts ssh_key
FUZZERS += $(SSH_FUZZERS)
endif
WITH_HTTP ?= auto
HTTP_LIBS := $(shell $(PKG_CONFIG) --libs libmicrohttpd 2>/dev/null)
ifneq ($(or $(filter yes,$(WITH_HTTP)),$(and $(filter auto,$(WITH_HTTP)),\
		$(HTTP_LIBS))),)
PLUGINS += $(BUILD)/lib/hvd/status-http.so
endif
# WITH_MPI=/path uses /path/bin/mpicc; MPICC names another compiler.
WITH_MPI ?= auto
MPICC ?= $(if $(filter auto yes,$(WITH_MPI)),mpicc,$(WITH_MPI)/bin/mpicc)
ifneq ($(WITH_MPI),no)
MPI_SHOWN := $(shell $(MPICC) -show 2>/dev/null)
endif
mpi_cflags = $(patsubst -I%,-isystem %,$(filter -I%,$(1)))
mpi_libs = $(filter -L% -l% -Wl$(comma)-rpath%,$(1))
ifneq ($(MPI_SHOWN),)
PLUGINS += $(BUILD)/lib/hvd/libhvd-mpi.so
endif
# Headers only: hvd-pmix loads the host's library.
WITH_PMIX ?= auto
ifneq ($(WITH_PMIX),no)
PMIX_CFLAGS := $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags pmix \
	2>/dev/null))
endif
# WITH_NCCL=/path has CUDA's bin/nvcc and include/cuda.h; NCCL_HOME is where
# NCCL is, if elsewhere.
WITH_NCCL ?= auto
CUDA_HOME ?= /usr/local/cuda
NCCL_HOME ?= /usr
CUDA := $(if $(filter auto yes no,$(WITH_NCCL)),$(CUDA_HOME),$(WITH_NCCL))
NVCC := $(CUDA)/bin/nvcc
ifneq ($(WITH_NCCL),no)
NCCL_INCLUDE := $(patsubst %/nccl.h,%,$(firstword $(wildcard \
	$(CUDA)/include/nccl.h $(NCCL_HOME)/include/nccl.h)))
ifneq ($(and $(wildcard $(NVCC)),$(wildcard $(CUDA)/include/cuda.h)),)
WITH_NCCL_NOW := $(NCCL_INCLUDE)
endif
endif
ifneq ($(WITH_NCCL_NOW),)
PLUGINS += $(BUILD)/lib/hvd/libhvd-nccl.so
ifeq ($(SAN),)
GPU_EXAMPLES := train_digits_cuda
endif
NCCL_TESTS := nccl_kernels nccl_open
NCCL_PLANE_TESTS := nccl_plane nccl_failures
UNIT_TESTS += $(NCCL_TESTS) $(NCCL_PLANE_TESTS)
SYSTEM_PROGS += nccl_double nccl_verbs
NCCL_CFLAGS := -isystem $(CUDA)/include $(if \
	$(filter-out $(CUDA)/include,$(NCCL_INCLUDE)),-isystem $(NCCL_INCLUDE))
NCCL_LIBDIR := $(firstword $(wildcard $(addprefix \
	$(NCCL_INCLUDE:%/include=%)/,lib64 lib)))
# Linked with NCCL itself and with the driver, for which CUDA has a stand-in.
ifneq ($(and $(if $(SAN),,plain),$(wildcard $(NCCL_LIBDIR)/libnccl.so), \
	$(wildcard $(CUDA)/lib64/stubs/libcuda.so)),)
GPU_EXAMPLES += nccl_id
endif
# The version in words: "13.0" of 13000.
CUDA_TEXT := $(shell sed -n 's/^.define CUDA_VERSION  *\([0-9]*\)0\([0-9]\)0$$/\1.\2/p' \
	$(CUDA)/include/cuda.h)
# Machine code for each device of 7.0 to 9.0 that this nvcc knows, and PTX of
# the last one for later devices.
GPU_ARCHS := $(patsubst compute_%,%,$(sort $(filter $(addprefix compute_,70 72 \
	75 80 86 87 88 89 90),$(shell $(NVCC) --list-gpu-arch))))
GENCODE := $(foreach arch,$(GPU_ARCHS), \
	-gencode arch=compute_$(arch)$(comma)code=sm_$(arch)) \
	-gencode arch=compute_$(lastword $(GPU_ARCHS))$(comma)code=compute_$(lastword \
	$(GPU_ARCHS))
endif
CHECK_LIBS := $(shell $(PKG_CONFIG) --libs check 2>/dev/null)

ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. -iquote lib/base \
	-DHVD_VERSION='"$(VERSION)"' \
	$(OPT) $(DEBUG) -fPIC -fvisibility=hidden -pthread \
	$(WARN) $(HARDEN) $(SANFLAGS) $(DEPS_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = -pthread -Wl,-z,relro -Wl,-z,now -Wl,--as-needed \
	$(SANFLAGS) $(SAN_LDFLAGS) $(LDFLAGS)

# ---- Programs and libraries -------------------------------------------

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

LIBS := base hosts protocol rendezvous transport agent job runtime
BIN := $(BUILD)/bin
LIB := $(BUILD)/lib
SO := $(LIB)/libhvd.so.$(SOVERSION)

.PHONY: all
all: $(BIN)/hvdrun $(BIN)/horovodrun $(BIN)/hvd-agent $(BIN)/hvd-bench \
	$(LIB)/libhvd.so $(PLUGINS) \
	$(EXAMPLES:%=$(BUILD)/examples/%) $(GPU_EXAMPLES:%=$(BUILD)/examples/%)

ifeq ($(and $(UV_LIBS),$(JANSSON_LIBS),$(YAML_LIBS),$(SODIUM_A)),)
$(BUILD)/flags: packages-missing
endif
ifeq ($(and $(filter-out auto no,$(WITH_MPI)),$(if $(MPI_SHOWN),,1)),1)
$(BUILD)/flags: mpi-missing
endif
ifeq ($(and $(filter-out auto no,$(WITH_NCCL)),$(if $(WITH_NCCL_NOW),,1)),1)
$(BUILD)/flags: nccl-missing
endif
ifeq ($(and $(filter yes,$(WITH_PMIX)),$(if $(PMIX_CFLAGS),,1)),1)
$(BUILD)/flags: pmix-missing
endif
.PHONY: packages-missing mpi-missing nccl-missing pmix-missing
pmix-missing:
	@echo 'libpmix-dev is not installed: WITH_PMIX=no builds without PMIx' \
		>&2; exit 1
nccl-missing:
	@echo 'there is no bin/nvcc and include/cuda.h in $(CUDA), or no nccl.h' \
		'there or in $(NCCL_HOME)/include: WITH_NCCL=no builds without' \
		'NCCL' >&2; exit 1
mpi-missing:
	@echo 'there is no $(MPICC): install one, name another with MPICC, or' \
		'build without by WITH_MPI=no' >&2; exit 1
packages-missing:
	@echo 'libuv, jansson, libyaml or libsodium is not installed: try' \
		'"make quickstart" or "sh .ci/packages build"' >&2; exit 1

# Other flags rebuild all: a stamp is rewritten only if they differ.  The
# choice of plug-ins has its own stamp, as nothing else is compiled for it; a
# plug-in that is no longer chosen is removed, or it would still be loaded.
FLAGS_NOW := $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) \
	$(CUDA_TEXT) $(NCCL_CFLAGS) $(GENCODE)
PLUGINS_NOW := $(MPI_SHOWN) $(notdir $(PLUGINS))
NO_MPI_NOTE := $(if $(filter no,$(WITH_MPI))$(MPI_SHOWN),,there is no \
	$(MPICC): building without libhvd-mpi.so)
NO_NCCL_NOTE := $(if $(filter auto,$(WITH_NCCL)),$(if $(WITH_NCCL_NOW),,no \
	CUDA toolkit with NCCL in $(CUDA): building without libhvd-nccl.so))
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(FLAGS_NOW))' | cmp -s - $@ || \
		echo '$(subst ','\'',$(FLAGS_NOW))' >$@
$(BUILD)/plugins: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(PLUGINS_NOW))' | cmp -s - $@ || { \
		rm -f $(LIB)/hvd/*.so $(BUILD)/tests/*/libhvd-mpi.so && \
		echo '$(subst ','\'',$(PLUGINS_NOW))' >$@; \
		$(if $(NO_MPI_NOTE),echo '$(NO_MPI_NOTE)';) \
		$(if $(NO_NCCL_NOTE),echo '$(NO_NCCL_NOTE)';) }
$(PLUGINS) $(call obj,$(MPI_PLUGIN_SRC)): $(BUILD)/plugins
.PHONY: FORCE
FORCE:

# Inline more: a small operation consists of calls of small functions.
$(BUILD)/obj/runtime/%.o: OPT := $(OPT:-O2=-O3)
# Compile faster: these run briefly.
$(BUILD)/obj/tests/%.o: OPT := $(OPT:-O2=-O1)
$(BUILD)/obj/tests/unit/test_generations_model.o: OPT := -O2

# No fused multiply-add, so that every kernel gives the same bits.
$(BUILD)/obj/runtime/plane/kernels/reduce_%.o: FILE_CFLAGS = -ffp-contract=off
$(BUILD)/obj/runtime/plane/adasum.o: FILE_CFLAGS = -ffp-contract=off
$(BUILD)/obj/runtime/plane/kernels/reduce_avx2.o: FILE_CFLAGS = -ffp-contract=off \
	-mavx2 -mf16c
$(BUILD)/obj/runtime/plane/kernels/reduce_avx512.o: FILE_CFLAGS = -ffp-contract=off \
	-mavx2 -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl

# This object contains the script.
$(BUILD)/obj/lib/remote/bootstrap.o: lib/remote/bootstrap.sh

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(FILE_CFLAGS) -MMD -MP -c -o $@ $<

define archive
$(BUILD)/obj/lib$(1).a: $$(call obj,$$($(2)_SRC))
	@rm -f $$@
	$(AR) rcs $$@ $$^
endef
$(eval $(call archive,base,BASE))
$(eval $(call archive,hosts,HOSTS))
$(eval $(call archive,protocol,PROTOCOL))
$(eval $(call archive,rendezvous,RENDEZVOUS))
$(eval $(call archive,transport,TRANSPORT))
$(eval $(call archive,ssh,SSH))
$(eval $(call archive,agent,AGENT))
$(eval $(call archive,job,JOB))
$(eval $(call archive,runtime,RUNTIME))
$(eval $(call archive,hvdrun,HVDRUN))
$(eval $(call archive,hvd-bench,HVD_BENCH))
ar = $(patsubst %,$(BUILD)/obj/lib%.a,$(1))

HVDRUN_PARTS := $(call ar,hvdrun job transport rendezvous agent hosts \
	protocol base)
link_hvdrun = $(CC) $(ALL_LDFLAGS) -pie -o $@ -Wl,--start-group $(filter %.a,$^) \
	-Wl,--end-group $(UV_LIBS) $(JANSSON_LIBS) $(YAML_LIBS) $(SODIUM_A) \
	-ldl -lm

# Static programs.  The linker warns about look-ups of users, which libuv has
# and the agent does not use; for hvdrun see linkage_static.c.
NO_WARNINGS := $(shell ld --no-warnings --version >/dev/null 2>&1 && \
	echo -Wl,--no-warnings)
check_static = @! nm $@ | grep ' U ' || { rm $@; exit 1; } # silenced, too
LINKAGE := $(call obj,lib/base/sys/linkage_static.c)
define link_static_hvdrun
	$(CC) $(ALL_LDFLAGS) $(NO_WARNINGS) $(STATIC_LINK) -o $@ \
	$(LINKAGE) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
	-l:libuv_a.a -l:libjansson.a -l:libyaml.a $(SODIUM_A) -ldl -lm
	$(check_static)
endef
$(BIN)/horovodrun: $(BIN)/hvdrun
	ln -sf hvdrun $@
# Another value of STATIC links hvdrun again.
$(BIN)/hvdrun: $(HVDRUN_PARTS) $(LINKAGE) $(BUILD)/static
	@mkdir -p $(@D)
	$(if $(filter 1,$(STATIC)),$(link_static_hvdrun),$(link_hvdrun))
$(BUILD)/static: FORCE
	@mkdir -p $(@D)
	@echo '$(filter 1,$(STATIC))' | cmp -s - $@ || \
		echo '$(filter 1,$(STATIC))' >$@

# Debian's name for the folder of this architecture's libraries, if the compiler
# has one: x86_64-linux-gnu.
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
$(BUILD)/obj/cmd/hvdrun/libdirs.o: FILE_CFLAGS = -DHVD_MULTIARCH='"$(MULTIARCH)"'

# The plug-in has its own copy of what it needs, and exports one function.
$(LIB)/hvd/transport-ssh2.so: $(call obj,$(SSH2_SRC)) \
		$(call ar,ssh transport base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-z,defs -Wl,-z,nodelete -o $@ \
		$(filter %.o %.a,$^) $(UV_LIBS) $(SSH2_LIBS) \
		-Wl,--exclude-libs,libsodium.a $(SODIUM_A)

# Like the ssh2 plug-in.
$(LIB)/hvd/status-http.so: $(call obj,$(SERVE_SRC)) $(call ar,base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-z,defs -Wl,-z,nodelete -o $@ \
		$(filter %.o %.a,$^) $(UV_LIBS) $(HTTP_LIBS) \
		-Wl,--exclude-libs,libsodium.a $(SODIUM_A)

# Like the ssh2 plug-in.  MPI cannot be unloaded.
$(BUILD)/obj/runtime/plugins/mpi/%.o: FILE_CFLAGS = \
	$(call mpi_cflags,$(MPI_SHOWN))
link_mpi = $(CC) $(ALL_LDFLAGS) -shared -Wl,-z,defs -Wl,-z,nodelete \
	-Wl,--version-script=runtime/plugins/mpi/libhvd-mpi.map
$(LIB)/hvd/libhvd-mpi.so: $(call obj,$(MPI_PLUGIN_SRC) $(MPI_PLUGIN_OWN)) \
		$(call ar,base) runtime/plugins/mpi/libhvd-mpi.map
	@mkdir -p $(@D)
	$(link_mpi) -o $@ $(filter %.o %.a,$^) $(call mpi_libs,$(MPI_SHOWN))

# Like the ssh2 plug-in.  It loads CUDA and NCCL itself at run time; the rpath
# helps it to find NCCL if the system's linker does not.  A package has none.
NCCL_RPATH = $(NCCL_LIBDIR)
$(BUILD)/obj/runtime/plugins/nccl/%.o: FILE_CFLAGS = $(NCCL_CFLAGS) \
	-DHVD__CUDA_TEXT='"$(CUDA_TEXT)"'
$(BUILD)/obj/runtime/plugins/nccl/kernels.fatbin: \
		$(addprefix runtime/plugins/nccl/,kernels.cu kernels.h \
		kernels_body.h) $(BUILD)/flags
	@mkdir -p $(@D)
	$(NVCC) -fatbin -Xfatbin -compress-all -std=c++17 -O3 -fmad=false -I. \
		$(GENCODE) -o $@ $<
$(BUILD)/obj/runtime/plugins/nccl/kernels_image.o: \
		$(BUILD)/obj/runtime/plugins/nccl/kernels.fatbin
$(BUILD)/obj/runtime/plugins/nccl/kernels_image.o: \
		runtime/plugins/nccl/kernels_image.S $(BUILD)/flags
	$(CC) -DHVD__FATBIN='"$(@D)/kernels.fatbin"' -c -o $@ $<
NCCL_IMAGE := $(BUILD)/obj/runtime/plugins/nccl/kernels_image.o
$(LIB)/hvd/libhvd-nccl.so: $(call obj,$(NCCL_PLUGIN_SRC) $(NCCL_PLUGIN_OWN)) \
		$(NCCL_IMAGE) $(call ar,base) runtime/plugins/nccl/libhvd-nccl.map
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-z,defs -Wl,-z,nodelete \
		-Wl,--version-script=runtime/plugins/nccl/libhvd-nccl.map \
		$(NCCL_RPATH:%=-Wl,-rpath,%) -o $@ $(filter %.o %.a,$^) -ldl

# hvd-pmix is inside the agent; without PMIx, nothing is.
$(call obj,$(HVD_PMIX_SRC)): FILE_CFLAGS = $(PMIX_CFLAGS)
PMIX_IMAGE := $(BUILD)/obj/cmd/hvd-pmix/hvd-pmix.image
$(BUILD)/obj/cmd/hvd-pmix/hvd-pmix: $(call obj,$(HVD_PMIX_SRC)) \
		$(call ar,protocol base)
	$(CC) $(ALL_LDFLAGS) -pie -o $@ $^ -ldl
ifneq ($(PMIX_CFLAGS),)
$(PMIX_IMAGE): $(BUILD)/obj/cmd/hvd-pmix/hvd-pmix $(BUILD)/pmix
	strip -o $@ $<
else
$(PMIX_IMAGE): $(BUILD)/pmix
	@mkdir -p $(@D)
	@: >$@
endif
$(BUILD)/pmix: FORCE
	@mkdir -p $(@D)
	@echo '$(PMIX_CFLAGS)' | cmp -s - $@ || { echo '$(PMIX_CFLAGS)' >$@; \
		$(if $(PMIX_CFLAGS)$(filter no,$(WITH_PMIX)),:,echo 'no \
		libpmix-dev: building without PMIx'); }
PMIX_BYTES := $(BUILD)/obj/lib/agent/wireup/pmix/pmix_image_bytes.o
$(PMIX_BYTES): lib/agent/wireup/pmix/pmix_image_bytes.S $(PMIX_IMAGE)
	@mkdir -p $(@D)
	$(CC) -DHVD__PMIX_IMAGE='"$(PMIX_IMAGE)"' -c -o $@ $<
$(BUILD)/obj/libagent.a: $(PMIX_BYTES)

# Static, so that it runs on any host of the same CPU type.
$(BIN)/hvd-agent: $(call obj,$(HVD_AGENT_SRC)) \
		$(call ar,agent protocol base)
	@mkdir -p $(@D)
ifneq ($(STATIC_LINK),)
	$(CC) $(ALL_LDFLAGS) $(NO_WARNINGS) $(STATIC_LINK) -o $@ $^ \
		-l:libuv_a.a -ljansson -ldl $(SODIUM_A)
	$(check_static)
else
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(UV_LIBS) $(JANSSON_LIBS) $(SODIUM_A)
endif

$(SO): $(call obj,$(RUNTIME_SRC)) $(call ar,protocol base) runtime/libhvd.map
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,libhvd.so.$(SOVERSION) \
		-Wl,--version-script=runtime/libhvd.map -Wl,-z,defs \
		-Wl,-z,nodelete -o $@ \
		$(filter %.o %.a,$^) \
		-Wl,--exclude-libs,libsodium.a $(SODIUM_A)

$(LIB)/libhvd.so: $(SO)
	ln -sf $(notdir $(SO)) $@

# It looks for libhvd below its own prefix; a distribution's package need not.
BENCH_RPATH = $$ORIGIN/../lib:$$ORIGIN/../lib64$(MULTIARCH:%=:$$ORIGIN/../lib/%)
$(BUILD)/bench-rpath: FORCE
	@mkdir -p $(@D)
	@echo '$(BENCH_RPATH)' | cmp -s - $@ || echo '$(BENCH_RPATH)' >$@
$(BIN)/hvd-bench: $(call obj,$(HVD_BENCH_SRC)) $(LIB)/libhvd.so \
		$(call ar,base) $(BUILD)/bench-rpath
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) $(BENCH_RPATH:%=-Wl,-rpath,'%') -o $@ \
		$(filter %.o %.a,$^) -L$(LIB) -lhvd -ldl -lm

# Examples are compiled as by a user, with only the installed headers.
$(BUILD)/include/hvd.h: runtime/hvd.h
$(BUILD)/include/hvd_status.h: lib/base/hvd_status.h
$(BUILD)/include/%.h:
	@mkdir -p $(@D)
	cp $< $@
$(BUILD)/examples/data/%: examples/data/%
	@mkdir -p $(@D)
	cp $< $@
$(BUILD)/examples/%: examples/%.c examples/common.c examples/common.h \
		$(BUILD)/include/hvd.h $(BUILD)/include/hvd_status.h \
		$(LIB)/libhvd.so $(BUILD)/flags | $(EXAMPLE_DATA)
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE $(OPT) $(DEBUG) $(WARN) $(SANFLAGS) $(CFLAGS) \
		-I$(BUILD)/include -o $@ $< examples/common.c \
		$(SAN_LDFLAGS) -L$(LIB) -Wl,-rpath,'$$ORIGIN/../lib' -lhvd -lm

# GPU examples.  The driver compiles the kernels for the GPU that it finds.
$(BUILD)/obj/examples/common.o: FILE_CFLAGS = -Iexamples -I$(BUILD)/include
$(BUILD)/obj/examples/common.o: $(BUILD)/include/hvd.h \
		$(BUILD)/include/hvd_status.h
EXAMPLE_ARCH := compute_$(firstword $(GPU_ARCHS))
$(BUILD)/examples/%_cuda: examples/%_cuda.cu $(BUILD)/obj/examples/common.o \
		examples/common.h $(LIB)/libhvd.so $(BUILD)/flags | $(EXAMPLE_DATA)
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 $(OPT) -g -Werror all-warnings \
		-Xcompiler -Wall,-Wextra \
		-gencode arch=$(EXAMPLE_ARCH)$(comma)code=$(EXAMPLE_ARCH) \
		-I$(BUILD)/include -c -o $(BUILD)/obj/$(<:.cu=.o) $<
	$(CXX) -static-libstdc++ -static-libgcc -o $@ $(BUILD)/obj/$(<:.cu=.o) \
		$(filter %.o,$^) -L$(LIB) -Wl,-rpath,'$$ORIGIN/../lib' -lhvd \
		-L$(CUDA)/lib64 -lcudart_static -ldl -lrt -lpthread -lm

$(BUILD)/examples/nccl_id: examples/nccl_id.c $(BUILD)/obj/examples/common.o \
		examples/common.h $(LIB)/libhvd.so $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE $(OPT) $(DEBUG) $(WARN) $(SANFLAGS) $(CFLAGS) \
		$(NCCL_CFLAGS) -I$(BUILD)/include -o $@ $< $(filter %.o,$^) \
		$(SAN_LDFLAGS) -L$(LIB) -Wl,-rpath,'$$ORIGIN/../lib:$(NCCL_LIBDIR)' -lhvd \
		-L$(NCCL_LIBDIR) -lnccl -L$(CUDA)/lib64/stubs -lcuda \
		-Wl,--allow-shlib-undefined -lm

# ---- Tests ------------------------------------------------------------

# Shared by unit tests: a world of forked ranks, and what they compute.
WORLD_SRC := $(addprefix tests/unit/, \
	agent_util.c fake_agent.c forked.c hier_world.c remote_util.c \
	shards_training.c shm_group.c shm_member.c ssh_client.c ssh_server.c \
	tcp_group.c thread_plane.c values.c worker_client.c world_agent.c \
	world_elastic.c world_hosts.c)
$(eval $(call archive,world,WORLD))

$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o \
		$(call ar,world hvd-bench hvdrun job transport rendezvous agent hosts \
			runtime protocol base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group \
		$(filter %.a,$^) -Wl,--end-group \
		$(UV_LIBS) $(JANSSON_LIBS) $(YAML_LIBS) $(CHECK_LIBS) -lm \
		$(SODIUM_A) $(TESTED_LIBS)

$(BUILD)/tests/test_job $(BUILD)/tests/test_job_elastic \
		$(BUILD)/tests/test_job_grow $(BUILD)/tests/test_job_hosts \
		$(BUILD)/tests/test_job_leave $(BUILD)/tests/test_job_record: \
		$(call obj,tests/unit/job_util.c)

# The real agent, which these tests start.
$(BUILD)/tests/test_query $(BUILD)/tests/test_agent \
		$(BUILD)/tests/test_agent_launch \
		$(BUILD)/tests/test_agent_stall \
		$(BUILD)/tests/test_agent_route: | $(BIN)/hvd-agent

# This test examines the programs and libraries beside it.
$(BUILD)/tests/test_check_build: | $(BIN)/hvd-agent $(LIB)/libhvd.so
STAND_INS := $(addprefix $(BUILD)/tests/,stand_in.so beside/beside.so)
$(STAND_INS): $(call obj,tests/unit/stand_in.c)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-rpath,'$$ORIGIN/beside' -o $@ $<
$(BUILD)/tests/test_check_build $(BUILD)/tests/test_probe: | $(STAND_INS)

$(SSH2_TESTS:%=$(BUILD)/tests/test_%): | $(PLUGINS)
# These tests contain parts of the plug-in.
SSH_TESTED := $(patsubst %,$(BUILD)/tests/test_%,$(SSH_TESTS) $(SSH2_TESTS)) \
	$(SSH_FUZZERS:%=$(BUILD)/tests/fuzz_%)
$(SSH_TESTED): $(call ar,ssh)
$(SSH_TESTED): TESTED_LIBS = $(SSH2_LIBS)

# This fuzzer contains the part of the plug-in that needs no MPI.
$(BUILD)/tests/fuzz_mpi_counts: $(call obj,runtime/plugins/mpi/peer_counts.c)

# This test runs the cases of a system test's program.
$(BUILD)/tests/test_gather_alloc: $(call obj,tests/system/prog/gather_alloc_cases.c)

# These tests contain parts of the plug-in.
$(NCCL_TESTS:%=$(BUILD)/tests/test_%): $(NCCL_IMAGE) $(call obj, \
	$(addprefix runtime/plugins/nccl/,nccl_cuda.c fuse.c nccl.c))
$(NCCL_TESTS:%=$(BUILD)/obj/tests/unit/test_%.o): FILE_CFLAGS = $(NCCL_CFLAGS)
# These tests use the whole plug-in, with the test doubles.
NCCL_WORLD := tests/unit/nccl_world.c $(addprefix tests/system/prog/, \
	nccl_driver.c nccl_values.c)
$(call obj,$(NCCL_WORLD) $(NCCL_PLANE_TESTS:%=tests/unit/test_%.c)): \
	FILE_CFLAGS = $(NCCL_CFLAGS)
$(NCCL_PLANE_TESTS:%=$(BUILD)/tests/test_%): $(call obj,$(NCCL_WORLD)) \
	| $(PLUGINS) nccl-doubles

# What the system tests run as ranks, and the tools that drive them.
$(BUILD)/tests/prog/rdv: $(call obj,runtime/core/world/agent_client.c)
$(BUILD)/tests/prog/differ: $(call obj,$(addprefix tests/system/prog/, \
	differ_script.c prop_script.c prop_values.c))
$(BUILD)/tests/prog/prop: $(call obj,$(addprefix tests/system/prog/, \
	prop_job.c prop_script.c prop_values.c))
$(BUILD)/tests/prog/gather_alloc: $(call obj,tests/system/prog/gather_alloc_cases.c)
$(BUILD)/tests/prog/mpi_plane_rank: $(call obj,tests/unit/values.c \
	$(addprefix tests/system/prog/,mpi_plane_ops.c mpi_plane_world.c)) \
		$(call ar,runtime)
$(BUILD)/tests/prog/%: $(BUILD)/obj/tests/system/prog/%.o \
		$(LIB)/libhvd.so $(call ar,protocol base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ \
		-Wl,--start-group $(filter %.o %.a,$^) -Wl,--end-group \
		-L$(LIB) -lhvd $(JANSSON_LIBS) -lm

.PHONY: system-progs
system-progs: $(SYSTEM_PROGS:%=$(BUILD)/tests/prog/%)

# What STATIC=1 makes.  A sanitizer cannot be linked statically.
ifneq ($(STATIC_LINK),)
system-progs: $(BUILD)/tests/static/hvdrun
$(BUILD)/tests/static/hvdrun: $(HVDRUN_PARTS) $(LINKAGE)
	@mkdir -p $(@D)
	$(link_static_hvdrun)
system-progs: $(BUILD)/tests/static/actor
$(BUILD)/tests/static/actor: $(call obj,tests/system/prog/actor.c) \
		$(call ar,base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -static -o $@ $^
endif

# The plug-in for each MPI, whichever of them the build uses.
MPI_TESTS := $(if $(MPI_SHOWN),$(foreach mpi,openmpi mpich,$(if \
	$(shell command -v mpicc.$(mpi)),$(BUILD)/tests/$(mpi)/libhvd-mpi.so)))
$(BUILD)/tests/%/libhvd-mpi.so: $(MPI_PLUGIN_SRC) \
		$(call obj,$(MPI_PLUGIN_OWN)) $(call ar,base) \
		runtime/plugins/mpi/libhvd-mpi.map $(BUILD)/flags \
		$(BUILD)/plugins $(wildcard runtime/plugins/mpi/*.h) \
		$(wildcard runtime/plane/*.h runtime/plane/*/*.h) \
		runtime/plugins/mpi_plugin.h runtime/plugins/plugin.h \
		lib/protocol/collectives.h
	@mkdir -p $(@D)
	$(link_mpi) $(ALL_CFLAGS) -O3 \
		$(call mpi_cflags,$(shell mpicc.$* -show)) -o $@ \
		$(filter %.c %.o %.a,$^) $(call mpi_libs,$(shell mpicc.$* -show))
$(BUILD)/tests/prog/mpi_plane_rank: | $(MPI_TESTS)

# A user's program, with the headers and libraries of each MPI.
MPI_USERS := $(MPI_TESTS:%/libhvd-mpi.so=%/mpi_user)
$(BUILD)/tests/%/mpi_user: tests/system/prog/mpi_user.c $(LIB)/libhvd.so \
		$(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(call mpi_cflags,$(shell mpicc.$* -show)) -o $@ $< \
		$(ALL_LDFLAGS) $(LIB)/libhvd.so -Wl,-rpath,$(abspath $(LIB)) \
		$(call mpi_libs,$(shell mpicc.$* -show))
# A user's program without libhvd, of each MPI.
MPI_PROGRAMS := $(MPI_TESTS:%/libhvd-mpi.so=%/mpi_program)
$(BUILD)/tests/%/mpi_program: tests/system/prog/mpi_program.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE $(OPT) $(DEBUG) $(WARN) \
		$(call mpi_cflags,$(shell mpicc.$* -show)) -o $@ $< \
		$(call mpi_libs,$(shell mpicc.$* -show))
# For LD_PRELOAD: makes calls of MPI and of malloc fail.
MPI_FAILS := $(MPI_TESTS:%/libhvd-mpi.so=%/mpi_fail.so)
$(BUILD)/tests/%/mpi_fail.so: tests/system/prog/mpi_fail.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -I. -O2 -g $(WARN) -fPIC -shared \
		$(call mpi_cflags,$(shell mpicc.$* -show)) -o $@ $< \
		$(call mpi_libs,$(shell mpicc.$* -show))
system-progs: $(MPI_USERS) $(MPI_PROGRAMS) $(MPI_FAILS)

# For LD_PRELOAD: makes allocations fail in Python.
FAIL_ALLOC := $(BUILD)/tests/prog/fail_alloc.so
$(BUILD)/obj/tests/system/prog/fail_alloc.o: FILE_CFLAGS = \
	-fvisibility=default -fno-sanitize=all
$(FAIL_ALLOC): $(call obj,tests/system/prog/fail_alloc.c)
	@mkdir -p $(@D)
	$(CC) -shared -pthread $(LDFLAGS) -o $@ $^
system-progs: $(FAIL_ALLOC)

# Test doubles of the CUDA driver, of NCCL and of an NCCL without newer
# functions, in host memory, for tests without a GPU.
NCCL_DOUBLES := $(addprefix $(BUILD)/tests/nccl/, \
	libcuda.so.1 libnccl.so.2 libnccl-old.so.2)
.PHONY: nccl-doubles
nccl-doubles: $(NCCL_DOUBLES)
$(BUILD)/obj/tests/nccl/%.o: FILE_CFLAGS = $(NCCL_CFLAGS) -fvisibility=default
link_double = $(CC) $(ALL_LDFLAGS) -shared -Wl,-z,nodelete
$(BUILD)/tests/nccl/libcuda.so.1: $(call obj,$(addprefix tests/nccl/, \
		fake_copy.c fake_cuda.c fake_kernel.c fake_memory.c fake_stream.c))
	@mkdir -p $(@D)
	$(link_double) -Wl,-soname,$(@F) -o $@ $^
$(BUILD)/tests/nccl/lib%.so.2: $(call obj,$(addprefix tests/nccl/, \
		fake_nccl.c fake_nccl_calls.c fake_nccl_reduce.c fake_nccl_shared.c)) \
		$(BUILD)/tests/nccl/libcuda.so.1 tests/nccl/%.map
	$(link_double) -Wl,-soname,libnccl.so.2 -Wl,-rpath,'$$ORIGIN' \
		-Wl,--version-script=$(filter %.map,$^) -o $@ \
		$(filter-out %.map,$^) -lm
# The programs that tests/gpu/run runs, on a GPU or on the test doubles.
GPU_PROGS := $(if $(WITH_NCCL_NOW),$(addprefix $(BUILD)/tests/gpu/,checks kernels))
$(BUILD)/obj/tests/gpu/%.o: FILE_CFLAGS = $(NCCL_CFLAGS)
$(BUILD)/tests/gpu/kernels: $(NCCL_IMAGE) $(call obj,$(addprefix \
		runtime/plugins/nccl/,fuse.c nccl.c) cmd/hvd-bench/resnet50.c) \
		$(call ar,runtime)
$(BUILD)/tests/gpu/%: $(BUILD)/obj/tests/gpu/%.o $(call obj,tests/gpu/gpu_util.c \
		runtime/plugins/nccl/nccl_cuda.c) $(LIB)/libhvd.so $(call ar,base) \
		| $(NCCL_DOUBLES)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ \
		-Wl,--start-group $(filter %.o %.a,$^) -Wl,--end-group \
		-L$(LIB) -lhvd -ldl -lm
system-progs: $(GPU_PROGS)
NCCL_PROG := $(addprefix tests/system/prog/, nccl_cases.c nccl_driver.c \
	nccl_moves.c nccl_rank.c nccl_values.c)
$(call obj,$(addprefix tests/system/prog/,nccl_double.c nccl_verbs.c) \
	$(NCCL_PROG)): FILE_CFLAGS = $(NCCL_CFLAGS)
$(BUILD)/tests/prog/nccl_verbs: $(call obj,$(NCCL_PROG)) | $(NCCL_DOUBLES)
$(BUILD)/tests/prog/nccl_double: $(BUILD)/obj/tests/system/prog/nccl_double.o \
		$(filter-out %-old.so.2,$(NCCL_DOUBLES))
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../nccl' -o $@ $^

# A fuzzer replays files; with SAN=fuzzer it is linked with libFuzzer.
FUZZ_REPEAT := $(call obj,tests/fuzz/repeat.c)
FUZZ_MAIN := $(if $(filter fuzzer,$(SAN)),$(FUZZ_REPEAT) -fsanitize=fuzzer,\
	$(call obj,tests/fuzz/replay.c))
$(BUILD)/tests/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o \
		$(filter %.o,$(FUZZ_MAIN)) \
		$(call ar,hvdrun job transport rendezvous agent hosts \
			runtime protocol base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) \
		$(filter-out %.o,$(FUZZ_MAIN)) -Wl,--start-group \
		$(filter %.a,$^) -Wl,--end-group \
		$(UV_LIBS) $(JANSSON_LIBS) $(YAML_LIBS) $(SODIUM_A) -lm \
		$(TESTED_LIBS)

.PHONY: fuzzers
fuzzers: $(FUZZERS:%=$(BUILD)/tests/fuzz_%) $(FUZZ_REPEAT)

# ---- Python -------------------------------------------------------------

# The package hvd, in $(BUILD)/python: PYTHONPATH=build/python uses the checkout.
# PYTHON is the interpreter whose headers are used; from 3.11 on one extension
# serves all later versions.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
PYTHON_DIR := $(BUILD)/python/hvd
ifneq ($(filter python wheel-parts bench-python check-horovod \
	tests,$(MAKECMDGOALS)),)
PYTHON_FACTS := $(shell $(PYTHON) python/build_facts.py)
endif
PYTHON_INCLUDE = $(word 1,$(PYTHON_FACTS))
PYTHON_MODULE = $(PYTHON_DIR)/_hvd$(word 2,$(PYTHON_FACTS))
PYTHON_CFLAGS = -isystem $(PYTHON_INCLUDE) $(word 3,$(PYTHON_FACTS))
PYTHON_FILES = $(wildcard python/hvd/*)

.PHONY: python
python: $(if $(PYTHON_INCLUDE),$(PYTHON_MODULE),python-missing) \
		$(LIB)/libhvd.so $(PLUGINS)
	@find $(PYTHON_DIR) -type l -exec rm -f {} +
	@ln -sfn $(abspath $(LIB)) $(PYTHON_DIR)/lib
	@ln -sf $(addprefix $(CURDIR)/,$(PYTHON_FILES)) $(PYTHON_DIR)
	@$(INSTALL) -d $(PYTHON_DIR)/include
	@ln -sf $(CURDIR)/runtime/hvd.h $(CURDIR)/lib/base/hvd_status.h \
		$(PYTHON_DIR)/include
.PHONY: python-missing
python-missing:
	@echo '$(PYTHON) is older than 3.10 or has no headers: install' \
		'python3-dev, or name another by PYTHON=' >&2; exit 1
$(BUILD)/python-flags: FORCE
	@mkdir -p $(@D)
	@echo '$(PYTHON_FACTS)' | cmp -s - $@ || echo '$(PYTHON_FACTS)' >$@
$(call obj,$(PYTHON_SRC)): FILE_CFLAGS = $(PYTHON_CFLAGS)
$(call obj,$(PYTHON_SRC)): $(BUILD)/python-flags
# libhvd is beside the package in a checkout, else in the lib of the prefix:
# LIB/pythonX.Y/site-packages, LIB/hvd/python, or with pip's --target.  That one
# must be found first, so RPATH instead of RUNPATH.
PYTHON_RPATH := $$ORIGIN/lib:$$ORIGIN/../../..:$$ORIGIN/../../../../lib:$$ORIGIN/../lib
$(PYTHON_DIR)/_hvd%: $(call obj,$(PYTHON_SRC)) $(SO)
	@mkdir -p $(@D)
	$(CC) -shared $(ALL_LDFLAGS) -Wl,--disable-new-dtags \
		-Wl,-rpath,'$(PYTHON_RPATH)' -o $@ $(filter %.o,$^) $(SO)

# What pip installs: no examples are built for it.
.PHONY: wheel wheel-parts
wheel-parts: python $(BIN)/hvdrun $(BIN)/hvd-agent $(BIN)/hvd-bench
wheel:
	+@$(PYTHON) python/wheel_backend.py $(BUILD)/wheel

# What tests/run needs, built before it counts anything.
.PHONY: tests
tests: all $(if $(PYTHON_INCLUDE),python) system-progs $(UNIT_TESTS:%=$(BUILD)/tests/test_%) \
	fuzzers

# The stages of a full check, and what each covers, are in tests/run.
JOBS = $(if $(findstring --jobserver,$(MAKEFLAGS)),,-j$(shell nproc))
RUN_TESTS = MAKE='$(MAKE) -j$(shell nproc)' BUILD='$(BUILD)' \
	UNIT_TESTS='$(UNIT_TESTS)' FUZZERS='$(FUZZERS)' \
	FUZZ_LENS='$(FUZZ_LENS)' tests/run

.PHONY: quickstart
quickstart:
	sh .ci/packages build
	@echo 'building ...'
	@+$(MAKE) -s $(JOBS) all
	$(BIN)/hvdrun -np 2 $(BUILD)/examples/train_digits

.PHONY: check
check:
	sh .ci/packages test
	+@$(RUN_TESTS) all

# The quick tests, which need no other build and no more packages.
.PHONY: check-fast
check-fast:
	+@$(RUN_TESTS) build unit fuzz

# What tests/bench compares with: the peers that are installed, and a probe of
# the machine.  Only `make bench` builds them.
BENCH_PEERS := $(BUILD)/bench/machine_probe $(foreach mpi,openmpi mpich,\
	$(if $(shell command -v mpicc.$(mpi)),$(BUILD)/bench/mpi_peer.$(mpi))) \
	$(if $(wildcard /usr/include/gloo/allreduce.h),$(BUILD)/bench/gloo_peer)
PEER_SRC := tests/bench/peer.c cmd/hvd-bench/resnet50.c
PEER_CFLAGS := -std=c11 -D_GNU_SOURCE -I. -O3 -g $(WARN)
$(BUILD)/bench/machine_probe: tests/bench/machine_probe.c
	@mkdir -p $(@D)
	$(CC) $(PEER_CFLAGS) -march=native -o $@ $<
$(BUILD)/bench/mpi_peer.%: tests/bench/mpi_peer.c $(PEER_SRC) \
		tests/bench/peer.h
	@mkdir -p $(@D)
	mpicc.$* $(PEER_CFLAGS) -o $@ $(filter %.c,$^)
$(BUILD)/bench/gloo_peer: tests/bench/gloo_peer.cc $(PEER_SRC) \
		tests/bench/peer.h
	@mkdir -p $(@D)
	for f in $(PEER_SRC); do $(CC) $(PEER_CFLAGS) -c -o \
		$(@D)/$$(basename $$f .c).o $$f || exit 1; done
	$(CXX) -std=c++17 -I. -O3 -g -Wall -Wextra -o $@ $< \
		$(patsubst %.c,$(@D)/%.o,$(notdir $(PEER_SRC))) -lgloo -pthread

$(BUILD)/bench/elastic_job: tests/bench/elastic_job.c $(LIB)/libhvd.so \
		$(BUILD)/obj/libbase.a
	@mkdir -p $(@D)
	$(CC) $(PEER_CFLAGS) -iquote lib/base -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $< \
		$(BUILD)/obj/libbase.a -L$(LIB) -lhvd -pthread

# For a machine with a GPU; see tests/gpu/run.
.PHONY: gpu-check gpu-pack
gpu-check:
	BUILD='$(BUILD)' tests/gpu/run
gpu-pack: all system-progs
	rm -rf '$(BUILD)/gpu'
	BUILD='$(BUILD)' tests/gpu/run pack '$(BUILD)/gpu'

# Horovod's own tests of its Python interface, from a checkout of its repository:
# HOROVOD_SRC=dir.  CHECK="-n 2 -f test_torch.py -v" are options of the script.
.PHONY: check-horovod
check-horovod: all python
	@[ -n '$(HOROVOD_SRC)' ] || \
		{ echo 'say where the checkout is: HOROVOD_SRC=dir' >&2; exit 2; }
	BUILD='$(BUILD)' $(PYTHON) tests/horovod/run $(CHECK) '$(HOROVOD_SRC)'

# BENCH=--quick makes fewer and shorter jobs for the speed table.
.PHONY: bench bench-speed
bench-speed: all $(BENCH_PEERS)
	BUILD='$(BUILD)' tests/bench/speed $(BENCH)
.PHONY: bench-python
bench-python: all python
	BUILD='$(BUILD)' tests/bench/python $(BENCH)
.PHONY: bench-elastic
bench-elastic: all $(BUILD)/bench/elastic_job $(BUILD)/tests/prog/elastic_steps
	BUILD='$(BUILD)' tests/bench/elastic $(BENCH)
bench: bench-speed $(BUILD)/tests/prog/rdv
	BUILD='$(BUILD)' tests/bench/run
	BUILD='$(BUILD)' tests/bench/launch
	BUILD='$(BUILD)' tests/bench/cluster

.PHONY: asan ubsan tsan valgrind lint
asan ubsan tsan valgrind lint:
	+@$(RUN_TESTS) $@

# Inputs that reach new code collect in $(BUILD)/fuzz/corpus, and large seeds are
# made in $(BUILD)/fuzz/large.  FUZZ names the fuzzers; each runs for
# FUZZ_SECONDS, or until FUZZ_RUNS inputs are done (-1: no limit).  Inputs grow
# up to FUZZ_LEN_<name> bytes: a little more than the parser's largest limit, so
# that both sides of it are reached.
FUZZ ?= $(FUZZERS)
FUZZ_SECONDS ?= 60
FUZZ_RUNS ?= -1
FUZZ_LEN_agent = 4096
FUZZ_LEN_allocation = 4096
FUZZ_LEN_bootstrap = 200000
FUZZ_LEN_endpoint = 8192
FUZZ_LEN_frame = 1100000
FUZZ_LEN_http = 8300
FUZZ_LEN_mpi_counts = 256
FUZZ_LEN_plane = 400
FUZZ_LEN_route = 4096
FUZZ_LEN_stall = 4096
FUZZ_LEN_tcp = 17000
FUZZ_LEN_tcp_setup = 512
FUZZ_LEN_tcp_steps = 600
fuzz_len = $(or $(FUZZ_LEN_$(1)),70000)
FUZZ_LENS = $(foreach f,$(FUZZERS),$(f)=$(call fuzz_len,$(f)))
.PHONY: fuzz $(FUZZERS:%=fuzz-%)
fuzz: $(FUZZ:%=fuzz-%)
$(FUZZERS:%=fuzz-%): fuzz-%: fuzz-build fuzz-seeds
	@mkdir -p $(BUILD)/fuzz/corpus/$* $(BUILD)/fuzz/large/$*
	$(BUILD)/fuzz/tests/fuzz_$* -close_fd_mask=1 \
		-max_total_time=$(FUZZ_SECONDS) -runs=$(FUZZ_RUNS) \
		-max_len=$(call fuzz_len,$*) -verbosity=0 -print_final_stats=1 \
		-artifact_prefix=$(BUILD)/fuzz/$*- \
		$(BUILD)/fuzz/corpus/$* tests/fuzz/corpus/$* \
		$(BUILD)/fuzz/large/$*
.PHONY: fuzz-seeds fuzz-build
fuzz-seeds:
	@tests/fuzz/large_seeds $(BUILD)/fuzz/large $(FUZZ_LENS)
fuzz-build:
	+@$(MAKE) BUILD=$(BUILD)/fuzz CC=clang SAN=fuzzer fuzzers

C_FILES = $(shell find cmd lib runtime examples tests -name '*.[ch]' -o \
	-name '*.cu')
CLANG_FORMAT ?= $(shell command -v clang-format-14 || echo clang-format)

.PHONY: format format-check
format:
	$(CLANG_FORMAT) -i $(C_FILES)
format-check:
	$(CLANG_FORMAT) --dry-run -Werror $(C_FILES)

# For editors and clang-tidy: the compiler calls that make would run.
.PHONY: compile_commands.json
compile_commands.json:
	@$(MAKE) --no-print-directory --always-make --dry-run all tests | \
	awk -v dir='$(CURDIR)' '/ -c -o / { \
		file = $$NF; gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); \
		printf "%s{\"directory\": \"%s\", \"file\": \"%s\", " \
			"\"command\": \"%s\"}", n++ ? ",\n" : "[\n", dir, file, $$0 \
	} END { print "\n]" }' >$@

# ---- Install ------------------------------------------------------------

# LIBDIR may also be PREFIX/lib64 or PREFIX/lib/$(MULTIARCH): hvdrun looks in these
# for plug-ins.  STRIP=: keeps the debug information.
LIBDIR = $(PREFIX)/lib
BINDIR = $(DESTDIR)$(PREFIX)/bin
LIBEXECDIR = $(DESTDIR)$(PREFIX)/libexec/hvd
LIB_TO = $(DESTDIR)$(LIBDIR)
INCLUDEDIR = $(DESTDIR)$(PREFIX)/include
MANDIR = $(DESTDIR)$(PREFIX)/share/man
DATADIR = $(DESTDIR)$(PREFIX)/share
SHAREDIR = $(DATADIR)/hvd
COMPLETIONS = bash-completion/completions zsh/site-functions \
	fish/vendor_completions.d
DOCDIR = $(DESTDIR)$(PREFIX)/share/doc/hvd
INSTALL ?= install
STRIP ?= strip

# Installs files with mode $(1) into folder $(2), and strips them there.
install_code = $(INSTALL) -m $(1) $(3) $(2) && \
	$(STRIP) --strip-unneeded $(addprefix $(2)/,$(notdir $(3)))

# Programs need a path to libhvd where the loader does not look by itself.
SYSTEM_LIBDIRS := /lib /lib64 /usr/lib /usr/lib64 $(if $(MULTIARCH), \
	$(addsuffix /$(MULTIARCH),/lib /usr/lib))
PC_RPATH = $(if $(filter $(SYSTEM_LIBDIRS),$(LIBDIR)),,-Wl,-rpath,$${libdir} )

# All that were built, whatever WITH_X is now.
BUILT_PLUGINS = $(wildcard $(LIB)/hvd/*.so)
BUILT_PYTHON = $(wildcard $(PYTHON_DIR)/_hvd*.so)

.PHONY: install install-files
install: all
	@$(MAKE) --no-print-directory install-files
install-files:
	$(INSTALL) -d $(BINDIR) $(LIBEXECDIR) $(LIB_TO)/pkgconfig \
		$(INCLUDEDIR) $(SHAREDIR)/examples/data $(SHAREDIR)/hostfiles \
		$(DOCDIR)
	$(call install_code,755,$(BINDIR),$(BIN)/hvdrun $(BIN)/hvd-bench)
	[ -e $(BINDIR)/horovodrun ] && [ ! -L $(BINDIR)/horovodrun ] || \
		ln -sf hvdrun $(BINDIR)/horovodrun
	$(call install_code,755,$(LIBEXECDIR),$(BIN)/hvd-agent)
	$(call install_code,644,$(LIB_TO),$(SO))
	ln -sf $(notdir $(SO)) $(LIB_TO)/libhvd.so
	$(if $(BUILT_PLUGINS),$(INSTALL) -d $(LIB_TO)/hvd && \
		$(call install_code,644,$(LIB_TO)/hvd,$(BUILT_PLUGINS)))
	$(if $(BUILT_PYTHON),$(INSTALL) -d $(LIB_TO)/hvd/python/hvd && \
		$(call install_code,644,$(LIB_TO)/hvd/python/hvd,$(BUILT_PYTHON)) && \
		(cd python && find hvd -name '*.py' -o -name '*.pyi' -o \
		-name py.typed | while read -r f; do $(INSTALL) -D -m 644 $$f \
		$(abspath $(LIB_TO))/hvd/python/$$f || exit 1; done))
	$(INSTALL) -m 644 runtime/hvd.h lib/base/hvd_status.h $(INCLUDEDIR)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' \
		-e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
		-e 's|@RPATH@|$(PC_RPATH)|' runtime/hvd.pc.in \
		>$(LIB_TO)/pkgconfig/hvd.pc
	$(INSTALL) -m 644 examples/*.[ch] examples/*.cu $(SHAREDIR)/examples
	$(INSTALL) -m 644 examples/data/* $(SHAREDIR)/examples/data
	$(INSTALL) -m 644 hostfiles/* $(SHAREDIR)/hostfiles
	$(INSTALL) -m 644 LICENSE docs/*.md $(DOCDIR)
	sh man/install $(MANDIR) $(INSTALL)
	$(INSTALL) -d $(COMPLETIONS:%=$(DATADIR)/%)
	$(BIN)/hvdrun --completion bash \
		>$(DATADIR)/bash-completion/completions/hvdrun
	$(BIN)/hvdrun --completion zsh >$(DATADIR)/zsh/site-functions/_hvdrun
	$(BIN)/hvdrun --completion fish \
		>$(DATADIR)/fish/vendor_completions.d/hvdrun.fish

# Removes what an install of this version would put there, but not a program
# where there would be a link: Horovod's own horovodrun.
.PHONY: uninstall
uninstall:
	@rm -rf $(BUILD)/uninstall
	@$(MAKE) --no-print-directory install-files \
		DESTDIR='$(abspath $(BUILD)/uninstall)' >/dev/null
	cd $(BUILD)/uninstall && find . ! -type d | while read -r f; do \
		to="$(abspath $(DESTDIR))/$$f"; \
		[ -L "$$f" ] && [ ! -L "$$to" ] || rm -f "$$to"; done
	cd $(BUILD)/uninstall && find . -depth -type d -path '*/hvd*' | \
		while read -r d; do rmdir "$(abspath $(DESTDIR))/$$d" || :; done
	@rm -rf $(BUILD)/uninstall

# ---- Packages -----------------------------------------------------------

# The sources of this version, without generated files: $(BUILD)/hvdrun-0.1.0.tar.gz.
DIST := hvdrun-$(VERSION)
.PHONY: dist
dist:
	.ci/dist $(DIST) $(BUILD)/$(DIST).tar.gz $(BUILD)

# Debian's packages from that archive, in $(BUILD)/deb.  DEB_NCCL=yes|PATH is
# WITH_NCCL for them: CUDA's toolkit is no package of Debian's main archive.
DEB_NCCL ?= no
.PHONY: deb check-deb
deb: dist
	DEB_NCCL='$(DEB_NCCL)' .ci/deb $(BUILD)/$(DIST).tar.gz $(BUILD)/deb
# With lintian, again in another folder for the same bytes, and in a new chroot.
check-deb: deb
	DEB_NCCL='$(DEB_NCCL)' .ci/check-deb $(BUILD)/$(DIST).tar.gz $(BUILD)/deb

.PHONY: help
help:
	@sed -n 's/^#   make/make/p' Makefile
	@printf '%s\n' \
	'make check-fast   unit tests and fuzz corpora of this build' \
	'make asan         unit and system tests under ASan and UBSan' \
	'make ubsan        unit tests under UBSan alone' \
	'make tsan         unit and libhvd system tests under ThreadSanitizer' \
	'make valgrind     unit tests under memcheck' \
	'make fuzz         fuzz every parser for a minute each; FUZZ="a b" some' \
	'make lint         layers, symbols, man pages, format, analysers' \
	'make format       clang-format 14, in place' \
	'make bench        the tables of README.md' \
	'make bench-speed  the speed table alone; BENCH=--quick is shorter' \
	'make check-horovod HOROVOD_SRC=dir   Horovod'"'"'s own tests' \
	'make gpu-check    what needs a GPU; gpu-pack: a folder to take to one' \
	'make uninstall    DESTDIR= PREFIX= LIBDIR= as for install' \
	'make dist         the sources as build/$(DIST).tar.gz' \
	'make deb          Debian packages in build/deb; check-deb tests them' \
	'make compile_commands.json, clean'

.PHONY: clean
clean:
	rm -rf $(BUILD)

# Objects of tests are kept, so that relinking does not compile.
.SECONDARY:

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

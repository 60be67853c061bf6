"use strict";
// The cost model of onnxfuse.cost, formula by formula; docs/cost.md says where each comes from. `tables` holds its
// constants, so that none is written twice. Times are microseconds, bytes are exact, GB/s are 1e9 bytes a second.
function makeCost(tables) {
  const K = tables.constants;
  const WARP = 32, PARTITIONS = 4, REGISTER_UNIT = 256, MAX_THREADS = 1024;
  const ceilDiv = (a, b) => Math.ceil(a / b);
  const roundUp = (value, unit) => ceilDiv(value, unit) * unit;
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const bytesOf = (elements, dtype) => Math.ceil((elements * tables.bits[dtype]) / 8);
  const scalar = (op) => tables.scalars[op] || tables.scalars[""];
  const base = (op) => op.split(":")[0];
  const smallest = (limits) => Object.entries(limits).reduce((a, b) => (b[1] < a[1] ? b : a));
  const largest = (terms) => Object.entries(terms).reduce((a, b) => (b[1] > a[1] ? b : a))[0];

  // ---- occupancy: NVIDIA's allocation rules, and the textbook's

  function occupancy(gpu, facts) {
    const warps = ceilDiv(facts.threads, WARP);
    if (facts.threads < 1 || facts.threads > MAX_THREADS) return { blocks: 0, fraction: 0, limiter: "threads" };
    const [limiter, blocks] = smallest({
      warps: Math.floor(gpu.warps_per_sm / warps),
      blocks: gpu.blocks_per_sm,
      registers: byRegisters(gpu, warps, facts.registers),
      smem: bySharedMemory(gpu, facts.smem),
      barriers: byBarriers(gpu, facts.barriers),
    });
    return { blocks, fraction: (blocks * warps) / gpu.warps_per_sm, limiter };
  }

  function byRegisters(gpu, warps, registers) {
    const perWarp = roundUp(registers * WARP, REGISTER_UNIT);
    if (perWarp === 0) return Infinity;
    if (registers > K.MAX_REGISTERS || perWarp * roundUp(warps, PARTITIONS) > gpu.registers_per_sm) return 0;
    return Math.floor((Math.floor(gpu.registers_per_sm / PARTITIONS / perWarp) * PARTITIONS) / warps);
  }

  function bySharedMemory(gpu, smem) {
    const block = roundUp(smem + gpu.smem_reserved, major(gpu) >= 8 ? 128 : 256);
    if (block > gpu.smem_per_block + gpu.smem_reserved) return 0;
    return block ? Math.floor(gpu.smem_per_sm / block) : Infinity;
  }

  function byBarriers(gpu, barriers) {
    if (major(gpu) < 9 || barriers < 1) return Infinity;
    return Math.floor((gpu.blocks_per_sm * (K.TWO_BARRIER_SETS.includes(gpu.compute_capability) ? 2 : 1)) / barriers);
  }

  function textbookOccupancy(gpu, facts) {
    const [limiter, blocks] = smallest({
      threads: Math.floor((gpu.warps_per_sm * WARP) / facts.threads),
      registers: facts.registers ? Math.floor(gpu.registers_per_sm / (facts.registers * facts.threads)) : Infinity,
      smem: facts.smem ? Math.floor(gpu.smem_per_sm / facts.smem) : Infinity,
    });
    return { blocks, fraction: (blocks * ceilDiv(facts.threads, WARP)) / gpu.warps_per_sm, limiter };
  }

  const major = (gpu) => parseInt(gpu.compute_capability, 10);

  // ---- what is known of a kernel

  function kernelFacts(work) {
    if (work.compiled) return [work.compiled, false];
    if (work.kind === "attention") return [K.ATTENTION_KERNEL, true];
    if (work.gemm_flops) return [K.GEMM_KERNEL, true];
    const words = work.live * work.vector * Math.max(1, Math.ceil(tables.bits[work.dtype] / 32));
    const need = Math.ceil(K.REGISTER_BASE + K.REGISTERS_PER_WORD * words);
    const registers = need <= K.REGISTER_FLOOR ? K.REGISTER_FLOOR : roundUp(need, 8);
    return [{ ...K.POINTWISE_KERNEL, registers }, true];
  }

  const peak = (gpu, dtype) => gpu.peak_tflops[tables.peaks[dtype] || "fp32"] || gpu.peak_tflops.fp32;
  const factor = (fraction) => Math.max(0.25, fraction);
  const waveTail = (blocks, resident) => (blocks > resident ? (ceilDiv(blocks, resident) * resident) / blocks : 1);
  const coalescing = (run) => (run ? run / (K.TRANSACTION * ceilDiv(run, K.TRANSACTION)) : 1);
  const grid = (work, threads) => work.blocks || Math.max(1, ceilDiv(work.elements, threads * work.vector));

  function instructions(work) {
    const parts = work.parts.filter(([op]) => !tables.steps.includes(op));
    if (!parts.length) return [work.flops - work.gemm_flops, work.special];
    const costs = parts.map(([op, elements]) => [scalar(base(op)), elements]);
    return [sum(costs.map(([cost, n]) => cost.slots * n)), sum(costs.map(([cost, n]) => cost.sfu * n))];
  }

  function gemmPlan(gemm, gpu) {
    const tile = K.TILE_ROWS.find((rows) => rows >= gemm.m) || K.TILE_ROWS[K.TILE_ROWS.length - 1];
    const tiles = Math.max(1, gemm.batch * ceilDiv(gemm.m, tile) * ceilDiv(gemm.n, K.TILE_COLUMNS));
    const split = Math.max(1, Math.min(ceilDiv(gpu.sms, tiles), Math.floor(gemm.k / K.SPLIT)));
    const [fullRows, derated] = K.FULL_RATE[major(gpu)] || [0, 1];
    const left = gemm.m * gemm.k * (ceilDiv(gemm.n, K.SHARED_TILE) - 1);
    const right = gemm.k * gemm.n * (ceilDiv(gemm.m, K.SHARED_TILE) - 1);
    const together = 2 * (Math.floor(Math.sqrt(Math.min(tiles, gpu.sms))) + 1) * K.TILE_COLUMNS * Math.min(gemm.k, K.LOCKSTEP);
    return {
      blocks: tiles * split,
      padded: 2 * gemm.batch * roundUp(gemm.m, tile) * roundUp(gemm.n, K.TILE_COLUMNS) * gemm.k,
      rate: tile < fullRows ? derated : 1,
      reread: gemm.batch * Math.max(0, left + right),
      hot: Math.min(together, gemm.batch * gemm.k * (gemm.m + gemm.n)),
    };
  }

  // ---- one kernel on a GPU

  function gpuTime(work, gpu, mode) {
    return mode === "basic" ? gpuBasic(work, gpu) : gpuExtended(work, gpu);
  }

  function gpuBasic(work, gpu) {
    const [facts] = kernelFacts(work);
    const resident = textbookOccupancy(gpu, facts);
    const f = factor(resident.fraction);
    const tensor = work.gemm_flops / (peak(gpu, work.dtype) * 1e6 * f);
    const alu = (work.flops - work.gemm_flops) / (gpu.peak_tflops.fp32 * 1e6 * f);
    const memory = (work.bytes_read + work.bytes_written) / (gpu.memory_gbs * 1e3);
    return gpuResult(Math.max(tensor + alu, memory), 0, memory, alu, 0, tensor, 1, resident, facts);
  }

  function gpuExtended(work, gpu) {
    const [facts] = kernelFacts(work);
    const resident = occupancy(gpu, facts);
    if (work.launches === 0) return gpuResult(0, 0, 0, 0, 0, 0, 1, resident, facts);
    const launch = gpu.launch_us;
    if (resident.blocks === 0) return gpuResult(Infinity, launch, Infinity, Infinity, Infinity, Infinity, 1, resident, facts);
    const gemm = work.gemm ? gemmPlan(work.gemm, gpu) : null;
    const blocks = gemm ? gemm.blocks : grid(work, facts.threads);
    const active = Math.min(blocks, gpu.sms);
    const tail = waveTail(blocks, gpu.sms * resident.blocks);
    const [slots, sfu] = instructions(work);
    const clocks = active * gpu.boost_ghz * 1e3;
    const alu = slots / (clocks * gpu.fp32_lanes_per_sm * (work.gemm_flops ? 1 : factor(resident.fraction)));
    const special = sfu / (clocks * gpu.sfu_per_clock_sm);
    const rate = (peak(gpu, work.dtype) * 1e6 * gpu.tensor_efficiency * active) / gpu.sms;
    const tensor = (gemm ? gemm.padded : work.gemm_flops) / (rate * (gemm ? gemm.rate : 1));
    const memory = memoryUs(work, gpu, blocks, resident.blocks, facts, gemm);
    const busy = tail * Math.max(alu, special, tensor);
    const total = launch + Math.max(memory, busy) + (1 - K.OVERLAP) * Math.min(memory, busy);
    return gpuResult(total, launch, memory, tail * alu, tail * special, tail * tensor, tail, resident, facts);
  }

  function memoryUs(work, gpu, blocks, residentBlocks, facts, gemm) {
    const active = Math.min(blocks, gpu.sms);
    const load = Math.min(K.VECTOR_BYTES, bytesOf(work.vector, work.dtype));
    const inFlight = Math.min(residentBlocks, ceilDiv(blocks, gpu.sms)) * facts.threads * load * K.LOADS_IN_FLIGHT;
    const dram = Math.min(
      gpu.memory_gbs * gpu.memory_efficiency,
      active * gpu.boost_ghz * K.SM_BYTES_PER_CLOCK,
      (active * inFlight) / K.LATENCY_NS,
    );
    const again = work.reread_bytes + (gemm ? bytesOf(gemm.reread, work.dtype) : 0);
    const l2 = hotBytes(work, gpu, residentBlocks, gemm) < K.L2_KEEPS * gpu.l2_bytes ? gpu.l2_gbs : dram;
    const first = (work.bytes_read - work.resident_bytes) / coalescing(work.run_bytes);
    const spills = facts.spill_bytes * blocks * facts.threads;
    return ((first + work.bytes_written) / dram + work.resident_bytes / gpu.l2_gbs + again / l2 + spills / gpu.l2_gbs) / 1e3;
  }

  function hotBytes(work, gpu, residentBlocks, gemm) {
    if (gemm) return bytesOf(gemm.hot, work.dtype);
    if (!work.sharers) return work.bytes_read;
    return Math.min(work.bytes_read, (ceilDiv(gpu.sms * residentBlocks, work.sharers) + 1) * work.shared_bytes);
  }

  function gpuResult(total, launch, memory, alu, sfu, tensor, tail, resident, facts) {
    const terms = { launch_us: launch, memory_us: memory, alu_us: alu, sfu_us: sfu, tensor_us: tensor };
    return { total_us: total, ...terms, tail, occupancy: resident, registers: facts.registers, limiter: largest(terms).replace("_us", "") };
  }

  function withResidents(works, gpu) {
    let written = 0;
    return works.map((work) => {
      const held = written < K.L2_KEEPS * gpu.l2_bytes ? Math.min(written, work.bytes_read) : 0;
      written = work.launches ? work.bytes_written : written;
      return held > work.resident_bytes ? { ...work, resident_bytes: held } : work;
    });
  }

  // ---- one call on a CPU

  function cpuTime(work, cpu, mode) {
    if (mode === "basic") return cpuBasic(work, cpu);
    const moved = (work.bytes_read + work.bytes_written) * (K.HALF_TYPES.includes(work.dtype) && !work.fused ? 2 : 1);
    const wanted = Math.max(Math.floor(moved / K.THREAD_BYTES), Math.floor(work.flops / K.THREAD_FLOPS));
    const used = Math.max(1, Math.min(cpu.cores, wanted));
    const node = nodeUs(work, cpu);
    const compute = computeUs(work, cpu) / used;
    const [level, memory] = cpuMemoryUs(cpu, moved, used);
    const rated = (moved * cpuMemoryUs(cpu, K.RATED_BYTES, 1)[1]) / K.RATED_BYTES / used;
    return cpuResult(node, compute, memory, level, work.gemm_flops ? 0 : (work.fused ? K.EXPOSED_FUSED : K.EXPOSED) * Math.max(0, memory - rated));
  }

  function cpuBasic(work, cpu) {
    const gflops = 2 * slotsPerNs(cpu);
    const gbs = cpu.cores === 1 ? cpu.memory_gbs : cpu.memory_gbs_all;
    return cpuResult(0, work.flops / (gflops * cpu.cores * 1e3), (work.bytes_read + work.bytes_written) / (gbs * 1e3), "DRAM");
  }

  function cpuResult(node, compute, memory, level, exposed = 0) {
    const limiter = node > Math.max(compute, memory) ? "node overhead" : compute >= memory ? "compute" : `memory (${level})`;
    return { total_us: node + Math.max(compute + exposed, memory), node_us: node, compute_us: compute, memory_us: memory, limiter };
  }

  const slotsPerNs = (cpu) => Math.floor(cpu.simd_bits / 32) * cpu.fma_units * cpu.clock_ghz;

  function nodeUs(work, cpu) {
    if (!work.fused) return cpu.node_us + cpu.operand_us * Math.max(0, work.operands - 2);
    const setUp = work.kind === "attention" ? cpu.attention_us : 0;
    return cpu.fused_node_us + cpu.fused_operand_us * work.operands + setUp;
  }

  function cpuMemoryUs(cpu, moved, threads) {
    const levels = cpu.caches.map((cache) => {
      const instances = Math.max(1, Math.floor(threads / Math.max(1, Math.min(cache.shared_by, cpu.cores))));
      return [`L${cache.level}`, Math.min(1, Math.max(0, 1 + K.CROWDED - moved / (cache.bytes * instances))), cache.gbs * threads];
    });
    levels.push(["DRAM", 1, threads === 1 ? cpu.memory_gbs : Math.min(cpu.memory_gbs_all, cpu.memory_gbs * threads)]);
    let reached = 0, total = 0, most = [-1, ""];
    for (const [level, hits, gbs] of levels) {
      const share = Math.max(0, hits - reached);
      if (share > most[0] || (share === most[0] && level > most[1])) most = [share, level];
      total += (share * moved) / gbs;
      reached = Math.max(reached, hits);
    }
    return [most[1], total / 1e3];
  }

  // What our kernel of that name takes for an element, measured with as many operands or the closest number; null if it is not known.
  function kernelNs(work, cpu) {
    for (const name of [work.special ? `${work.name}:special` : work.name, work.name]) {
      const known = Object.entries(cpu.kernel_rates)
        .map(([key, ns]) => [key.slice(0, key.lastIndexOf("/")), Number(key.slice(key.lastIndexOf("/") + 1)), ns])
        .filter(([kernel]) => kernel === name)
        .sort((a, b) => Math.abs(a[1] - work.operands) - Math.abs(b[1] - work.operands) || a[1] - b[1]);
      if (known.length) return known[0][2];
    }
    return null;
  }

  function elementNs(op, cpu, fused) {
    if (fused) {
      const plain = tables.plain[op] || op;
      return cpu.fused_rates[plain] ?? scalar(plain).vector_slots / (slotsPerNs(cpu) * cpu.generated_efficiency);
    }
    const known = cpu.rates[op] ?? cpu.rates[base(op)];
    if (known !== undefined) return known;
    return tables.scalars[base(op)] ? scalar(base(op)).vector_slots / slotsPerNs(cpu) : K.UNKNOWN_NS;
  }

  // [rows, GFLOP/s], fewest rows first.
  function ratesByRows(name, cpu) {
    const parts = Object.entries(cpu.gemm_rates).map(([key, rate]) => [...key.split("/"), rate]);
    return parts.filter((part) => part.length === 3 && part[0] === name).map((part) => [+part[1], part[2]]).sort((a, b) => a[0] - b[0]);
  }

  function productGflops(work, cpu) {
    const name = work.fused ? work.name : work.op;
    if (cpu.gemm_rates[name] !== undefined) return cpu.gemm_rates[name];
    let known = ratesByRows(name, cpu);
    if (!known.length && !work.fused) known = ratesByRows("MatMul", cpu);
    if (!known.length || !work.gemm || work.gemm.batch > 1) return cpu.gemm_gflops;
    const most = cpu.amx && work.fused && work.gemm.n < K.NARROW ? K.FEW_ROWS : known[known.length - 1][0];
    const rows = Math.min(Math.max(work.gemm.m, known[0][0]), most);
    for (let i = 0; i + 1 < known.length; i++) {
      const [few, low] = known[i], [many, high] = known[i + 1];
      if (rows > many) continue;
      const part = Math.log(rows / few) / Math.log(many / few);
      return Math.exp((1 - part) * Math.log(low) + part * Math.log(high));
    }
    return known[0][1];
  }

  // What laying out the left side for the AMX unit takes beyond what the rate has in it.
  function laidOutUs(work, cpu) {
    const gemm = work.gemm;
    if (!cpu.amx || !work.fused || !gemm || gemm.batch > 1 || gemm.m <= K.FEW_ROWS || gemm.n < K.NARROW) return 0;
    return cpuMemoryUs(cpu, K.LAID_OUT * gemm.m * gemm.k, 1)[1] * (1 - gemm.n / K.RATED_COLUMNS);
  }

  function computeUs(work, cpu) {
    if (work.kind === "attention" && work.fused) {
      return work.gemm_flops / (cpu.gemm_gflops * cpu.attention_efficiency) / 1e3 + work.rows * cpu.attention_row_us;
    }
    const measured = work.fused && !work.gemm_flops ? kernelNs(work, cpu) : null;
    if (measured !== null) return (work.elements * measured) / 1e3;
    const products = work.gemm_flops ? work.gemm_flops / productGflops(work, cpu) + 1e3 * laidOutUs(work, cpu) : 0;
    return (products + sum(work.parts.map(([op, elements]) => elements * elementNs(op, cpu, work.fused)))) / 1e3;
  }

  // ---- sets of kernels, and a decision

  const time = (work, device, mode) => (device.kind === "cpu" ? cpuTime(work, device, mode) : gpuTime(work, device, mode));

  function times(works, device, mode = "extended") {
    return (device.kind === "cpu" ? works : withResidents(works, device)).map((work) => time(work, device, mode));
  }

  function failures(work, device) {
    const found = [];
    if (work.nodes > K.MAX_NODES) found.push(`${work.nodes} nodes > ${K.MAX_NODES}`);
    if (work.operands > K.MAX_OPERANDS) found.push(`${work.operands} operands > ${K.MAX_OPERANDS}`);
    if (device.kind === "gpu") {
      const [facts] = kernelFacts(work);
      if (facts.registers > K.MAX_REGISTERS) found.push(`${facts.registers} registers > ${K.MAX_REGISTERS}`);
      if (facts.smem > device.smem_per_block) found.push(`${facts.smem} bytes of shared memory > ${device.smem_per_block}`);
    }
    return found;
  }

  // setting: {before, left, after}, kernels of one decision. launch: {registers, threads, smem} that fused kernels have instead.
  function price(setting, device, launch = null) {
    const after = launch ? setting.after.map((work) => (work.fused ? relaunched(work, launch) : work)) : setting.after;
    const kept = [...setting.left, ...after];
    const unfused = times(setting.before, device), fused = times(kept, device);
    const before_us = sum(unfused.map((t) => t.total_us)), after_us = sum(fused.map((t) => t.total_us));
    const broken = after.filter((work) => work.fused).flatMap((work) => failures(work, device));
    const alone = after.map((work) => times([work], device)[0]);
    const heaviest = alone.length ? alone.reduce((a, b) => (b.total_us > a.total_us ? b : a)) : null;
    const bytes = (works) => sum(works.map((work) => work.bytes_read + work.bytes_written));
    const launches = (works) => sum(works.map((work) => work.launches));
    const flops = (works) => sum(works.map((work) => work.flops));
    return {
      unfused_us: before_us,
      fused_us: after_us,
      saved_us: before_us - after_us,
      saved_bytes: bytes(setting.before) - bytes(kept),
      saved_launches: launches(setting.before) - launches(kept),
      limiter: heaviest ? heaviest.limiter : "nothing",
      kernel: heaviest,
      failures: broken,
      worth: !broken.length && before_us - after_us > K.MARGIN * before_us,
      before: { us: before_us, flops: flops(setting.before), bytes: bytes(setting.before), kernels: unfused },
      after: { us: after_us, flops: flops(kept), bytes: bytes(kept), kernels: fused },
    };
  }

  function relaunched(work, launch) {
    const [facts] = kernelFacts(work);
    const given = Object.fromEntries(Object.entries(launch).filter(([, value]) => value !== null && value !== undefined));
    return { ...work, compiled: { ...facts, ...given } };
  }

  return { occupancy, textbookOccupancy, kernelFacts, time, times, price, peak };
}

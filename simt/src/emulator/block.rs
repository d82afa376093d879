//! The block that runs: what its threads share.

use std::cell::{Cell, RefCell, RefMut};
use std::panic::Location;

use crate::WARP;
use crate::emulator::access::Access;
use crate::emulator::bulk::Counters;
use crate::emulator::collectives::{self, OPERANDS, Request};
use crate::emulator::global::{GlobalView, Recent};
use crate::emulator::launch::Launch;
use crate::emulator::shared::{Fences, SharedMemory};
use crate::emulator::spot::{Operation, Spot};
use crate::emulator::violation::{Checked, Violation};
use crate::emulator::warpgroup::{self, Products};
use crate::warpgroup::WARPGROUP;

/// Most threads a block may have.
pub(super) const MAX_THREADS: u32 = 1024;
pub(super) const MAX_WARPS: usize = (MAX_THREADS / WARP) as usize;

/// What is the same for all blocks of a launch.
pub(super) struct Grid<'a> {
    pub(super) launch: &'a Launch,
    pub(super) global: GlobalView<'a>,
    pub(super) step_limit: u64,
}

/// One block. All of its threads run on one OS thread, one at a time.
pub(super) struct Block<'a> {
    grid: &'a Grid<'a>,
    /// Linear number in the grid.
    number: u32,
    shared: &'a RefCell<SharedMemory>,
    /// The last collective of each thread, a placeholder until there is one.
    requests: RefCell<Vec<Request>>,
    block_phase: Cell<u32>,
    warp_phases: [Cell<u32>; MAX_WARPS],
    recent: Recent,
    counters: Counters,
    /// How often each thread has fenced its stores off from the copy engine, modulo [`Access::FENCES`], and in which
    /// phase of the block it last did.
    fences: RefCell<Vec<(u8, Option<u32>)>>,
    /// Sums that threads hand to a product of their warpgroup, and take back.
    sums: RefCell<Vec<Vec<f32>>>,
    products: RefCell<Products>,
    violation: RefCell<Option<Box<Violation>>>,
    calls: Cell<u64>,
}

impl<'a> Block<'a> {
    pub(super) fn new(grid: &'a Grid<'a>, number: u32, shared: &'a RefCell<SharedMemory>) -> Self {
        let nothing = Request {
            operation: Operation::SyncBlock,
            location: Location::caller(),
            operands: [0; OPERANDS],
        };
        Self {
            grid,
            number,
            shared,
            requests: RefCell::new(vec![nothing; grid.launch.block_threads as usize]),
            block_phase: Cell::default(),
            warp_phases: Default::default(),
            recent: Recent::default(),
            counters: Counters::default(),
            fences: RefCell::new(vec![(0, None); grid.launch.block_threads as usize]),
            sums: RefCell::default(),
            products: RefCell::default(),
            violation: RefCell::default(),
            calls: Cell::default(),
        }
    }

    // ---- For its threads -----------------------------------------------------------------------

    /// `(x, y)` in the grid.
    pub(super) fn position(&self) -> [u32; 2] {
        [self.number % self.grid_x(), self.number / self.grid_x()]
    }

    pub(super) fn grid_x(&self) -> u32 {
        self.grid.launch.grid[0]
    }

    pub(super) fn threads(&self) -> u32 {
        self.grid.launch.block_threads
    }

    pub(super) fn step_limit(&self) -> u64 {
        self.grid.step_limit
    }

    pub(super) fn count_calls(&self, calls: u64) {
        self.calls.set(self.calls.get() + calls);
    }

    /// An operation of a thread, in the phase in which the thread is now.
    pub(super) fn access(
        &self,
        thread: u16,
        operation: Operation,
        location: &'static Location<'static>,
    ) -> Access {
        let (block, block_phase) = (self.number, self.block_phase.get());
        let warp_phase = self.warp_phases[usize::from(thread) / WARP as usize].get();
        let (fences, _) = self.fences.borrow()[usize::from(thread)];
        Access { location, block, block_phase, warp_phase, thread, operation, fences }
    }

    pub(super) fn spot(&self, access: &Access) -> Spot {
        access.spot(self.grid_x())
    }

    pub(super) fn global(&self) -> (&GlobalView<'a>, &Recent) {
        (&self.grid.global, &self.recent)
    }

    /// The block's shared memory. Must not be held across a collective.
    pub(super) fn shared(&self) -> RefMut<'_, SharedMemory> {
        self.shared.borrow_mut()
    }

    /// The counters of bulk copies.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a fence of a thread.
    pub(super) fn fence(&self, thread: u16) {
        let (fences, phase) = &mut self.fences.borrow_mut()[usize::from(thread)];
        *fences = (*fences + 1) % Access::FENCES;
        *phase = Some(self.block_phase.get());
    }

    /// Gives a thread's sums to the product that it waits for.
    pub(super) fn hand_over(&self, thread: u16, sums: &[f32]) {
        let mut all = self.sums.borrow_mut();
        all.resize_with(self.threads() as usize, Vec::new);
        sums.clone_into(&mut all[usize::from(thread)]);
    }

    /// Takes them back, and the number of the product.
    pub(super) fn take_over(&self, thread: u16, sums: &mut [f32]) -> usize {
        sums.copy_from_slice(&self.sums.borrow()[usize::from(thread)]);
        let [product] = self.result(thread);
        product as usize
    }

    /// Notes that a thread has waited for a product.
    pub(super) fn waited(&self, product: usize, now: &Access) {
        if let Some(places) = self.products.borrow_mut().waited(product) {
            self.shared().take_back(&places, now);
        }
    }

    /// Keeps a violation, unless there is one.
    pub(super) fn report(&self, violation: Box<Violation>) {
        self.violation.borrow_mut().get_or_insert(violation);
    }

    pub(super) fn arrive(&self, thread: u16, request: Request) {
        self.requests.borrow_mut()[usize::from(thread)] = request;
    }

    pub(super) fn result<const N: usize>(&self, thread: u16) -> [u32; N] {
        let operands = self.requests.borrow()[usize::from(thread)].operands;
        std::array::from_fn(|i| operands[i])
    }

    // ---- For its scheduler ---------------------------------------------------------------------

    pub(super) fn violation(&self) -> Option<Box<Violation>> {
        self.violation.take()
    }

    /// Calls made by threads that have exited.
    pub(super) fn calls(&self) -> u64 {
        self.calls.get()
    }

    pub(super) fn request(&self, thread: u32) -> Request {
        self.requests.borrow()[thread as usize]
    }

    /// Performs the collective for which all lanes of a warp wait, if it is the same for all.
    pub(super) fn perform_warp(&self, warp: u32) -> Checked<bool> {
        let mut requests = self.requests.borrow_mut();
        let requests = &mut requests[(warp * WARP) as usize..][..WARP as usize];
        if !requests.iter().all(|request| request.is_same_call(&requests[0])) {
            return Ok(false);
        }
        if requests[0].operation == Operation::SyncWarp {
            self.count_barrier(warp, 1, &requests[0])?;
        }
        // Block sizes are at most 1024, so thread numbers fit.
        let thread = |lane: u16| u16::try_from(warp * WARP).unwrap_or(u16::MAX) + lane;
        let access =
            |lane: u16, request: &Request| self.access(thread(lane), request.operation, request.location);
        let Request { operation, location, .. } = requests[0];
        let refuse = |lane: u16, reason: String| {
            let by = self.spot(&self.access(thread(lane), operation, location));
            Box::new(Violation::InvalidOperand { by, reason })
        };
        collectives::perform(requests, &mut self.shared(), access, refuse)?;
        Ok(true)
    }

    /// Counts a barrier of a warp, or one of its warpgroup.
    fn count_barrier(&self, warp: u32, barrier: u32, request: &Request) -> Checked<()> {
        let phase = &self.warp_phases[warp as usize];
        let of_group = phase.get() / Access::OF_GROUP;
        let next = phase.get().checked_add(barrier);
        match next.filter(|next| next / Access::OF_GROUP == of_group + barrier / Access::OF_GROUP) {
            Some(next) => phase.set(next),
            None => {
                let thread = u16::try_from(warp * WARP).unwrap_or(u16::MAX);
                let by = self.spot(&self.access(thread, request.operation, request.location));
                let reason = "so many barriers without one of the block are not told apart".to_owned();
                return Err(Box::new(Violation::InvalidOperand { by, reason }));
            }
        }
        Ok(())
    }

    /// Performs the product or the barrier for which all threads of a warpgroup wait, if it is the same for all.
    pub(super) fn perform_warpgroup(&self, group: u32) -> Checked<bool> {
        let mut requests = self.requests.borrow_mut();
        let threads = (group * WARPGROUP) as usize..((group + 1) * WARPGROUP) as usize;
        let requests = &mut requests[threads.clone()];
        if !requests.iter().all(|request| request.is_same_call(&requests[0])) {
            return Ok(false);
        }
        let Request { operation, location, .. } = requests[0];
        if operation == Operation::SyncWarpgroup {
            let warps = group * (WARPGROUP / WARP)..(group + 1) * (WARPGROUP / WARP);
            for warp in warps {
                self.count_barrier(warp, Access::OF_GROUP, &requests[0])?;
            }
            return Ok(true);
        }
        // Block sizes are at most 1024, so thread numbers fit.
        let access = |thread: u32| {
            self.access(u16::try_from(group * WARPGROUP + thread).unwrap_or(u16::MAX), operation, location)
        };
        let refuse = |thread: u32, reason: String| {
            Box::new(Violation::InvalidOperand { by: self.spot(&access(thread)), reason })
        };
        let mut products = self.products.borrow_mut();
        let number = u32::try_from(products.next()).unwrap_or(u32::MAX);
        let (shared, fences) = (&mut self.shared(), self.fences.borrow());
        let of_group = fences[threads.clone()].iter().map(|(_, phase)| *phase);
        let by_all = of_group.reduce(|a, b| Some(a?.min(b?))).flatten();
        let fences = Fences { of_thread: &|thread| fences[usize::from(thread)].0, by_all };
        let sums = &mut self.sums.borrow_mut()[threads];
        warpgroup::multiply(requests, sums, (shared, &fences), &mut products, (access, refuse))?;
        requests.iter_mut().for_each(|request| request.operands[0] = number);
        Ok(true)
    }

    /// Performs the barrier at which all threads of the block wait, if it is the same for all.
    pub(super) fn perform_block(&self) -> bool {
        let requests = self.requests.borrow();
        let same = requests.iter().all(|request| request.is_same_call(&requests[0]));
        if same {
            self.block_phase.set(self.block_phase.get() + 1);
            self.warp_phases.iter().for_each(|phase| phase.set(0));
        }
        same
    }
}

//! Groups that meet, threads here that know nothing of each other, and groups that cannot.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use super::super::sockets::Frame;
use super::advert::{Advert, new_token};
use super::*;

const PATIENT: Duration = Duration::from_secs(60);

/// What each of some processes makes of the group that it joins, here threads that know nothing of each other.
fn processes<T: Send>(
    rendezvous: Vec<Rendezvous>,
    work: impl Fn(Communicator) -> T + Sync,
) -> Vec<Result<T, String>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = rendezvous
            .into_iter()
            .map(|one| scope.spawn(move || Ok(work(one.join().map_err(|error| error.to_string())?))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn by_file(path: &Path, ranks: usize) -> Vec<Rendezvous> {
    (0..ranks).rev().map(|rank| Rendezvous::by_file(path, rank, ranks).time_out(PATIENT)).collect()
}

/// Where rank 0 is, as soon as it says so.
fn await_advert(path: &Path) -> Advert {
    loop {
        match Advert::read(path) {
            Ok(advert) => return advert,
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Says to rank 0 of two what a process does that takes itself for another of them.
fn greet(advert: &Advert, token: u64, rank: usize) -> TcpStream {
    let greeting = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"), "token": token, "rank": rank, "ranks": 2, "process": 1, "host": "",
        "waits_at": null,
    });
    let mut stream = TcpStream::connect(advert.address()).unwrap();
    Frame::write(&mut stream, greeting.to_string().as_bytes()).unwrap();
    stream
}

#[test]
fn processes_become_a_group() {
    let folder = tempfile::tempdir().unwrap();
    for ranks in [1, 2, 5] {
        let path = folder.path().join(ranks.to_string());
        let found = processes(by_file(&path, ranks), |rank| {
            let long = vec![u8::try_from(rank.rank()).unwrap(); 300_000];
            for to in rank.others() {
                rank.send(to, long.clone());
            }
            for from in rank.others() {
                assert_eq!(rank.receive_each(&[from]).unwrap(), [vec![u8::try_from(from).unwrap(); 300_000]]);
            }
            assert_eq!((rank.local_rank(), rank.size()), (rank.rank(), ranks));
            rank.all_gather(&(rank.rank(), "x".repeat(rank.rank()))).unwrap()
        });
        let want: Vec<_> = (0..ranks).map(|rank| (rank, "x".repeat(rank))).collect();
        assert!(found.iter().all(|found| found.as_ref() == Ok(&want)), "{found:?}");
        assert!(!path.exists());
    }
}

#[test]
fn a_file_of_an_earlier_group_is_replaced_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    // Nobody waits there any more.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::mem::forget(Advert::write(&path, gone, new_token()).unwrap());
    let found = processes(by_file(&path, 2), |rank| rank.barrier());
    assert!(found.iter().all(|found| *found == Ok(Ok(()))), "{found:?}");
    std::fs::write(&path, "a letter").unwrap();
    let error = Rendezvous::by_file(&path, 0, 2).join().unwrap_err().to_string();
    assert!(error.contains("none of a rendezvous"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
}

#[test]
fn whoever_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let come = [0, 2, 3].map(|rank| Rendezvous::by_file(&path, rank, 5).time_out(Duration::from_millis(300)));
    let begun = Instant::now();
    for found in processes(come.to_vec(), |rank| rank.rank()) {
        let error = found.unwrap_err();
        assert!(error.contains("of 5 ranks, 1, 4 had not come after 0.3 s"), "{error}");
    }
    assert!(begun.elapsed() < PATIENT);
    assert!(!path.exists());
    let alone = Rendezvous::by_file(&path, 1, 2).time_out(Duration::from_millis(50)).join();
    let error = alone.unwrap_err().to_string();
    assert!(error.contains("rank 0 was not found in 0.05 s: the file: No such file"), "{error}");
}

#[test]
fn processes_that_do_not_fit_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let of = |pairs: &[[usize; 2]]| {
        let come =
            pairs.iter().map(|&[rank, ranks]| Rendezvous::by_file(&path, rank, ranks).time_out(PATIENT));
        processes(come.collect(), |rank| rank.rank())
    };
    for found in of(&[[0, 2], [1, 3]]) {
        assert!(found.as_ref().unwrap_err().contains("rank 1 is one of 3, rank 0 one of 2"), "{found:?}");
    }
    // Of three that are needed; whichever of both is second is refused, and the group with it.
    for found in of(&[[0, 3], [1, 3], [1, 3]]) {
        assert!(found.as_ref().unwrap_err().contains("there are two processes of rank 1"), "{found:?}");
    }
    assert!(Rendezvous::by_file(&path, 2, 2).join().unwrap_err().to_string().contains("rank 2 is none of 2"));
    assert_eq!(Rendezvous::by_file(&path, 0, 0).join().unwrap_err(), DistError::GroupSize { ranks: 0 });
}

/// Somebody at the door who is none of the group changes nothing.
#[test]
fn strangers_are_left_outside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let found = std::thread::scope(|scope| {
        let zero = scope.spawn(|| {
            let rank = Rendezvous::by_file(&path, 0, 2).time_out(PATIENT).join().unwrap();
            rank.barrier()
        });
        let advert = await_advert(&path);
        let mut stranger = TcpStream::connect(advert.address()).unwrap();
        stranger.write_all(&u64::MAX.to_le_bytes()).unwrap();
        drop(TcpStream::connect(advert.address()).unwrap());
        let mut of_another = greet(&advert, advert.token() ^ 1, 1);
        let answer = match Frame::read(&mut of_another, 100).unwrap() {
            Frame::Message(answer) => String::from_utf8(answer).unwrap(),
            _ => String::new(),
        };
        assert_eq!(answer, "\"Stranger\"");
        let rank = Rendezvous::by_file(&path, 1, 2).time_out(PATIENT).join().unwrap();
        (rank.barrier(), zero.join().unwrap())
    });
    assert_eq!(found, (Ok(()), Ok(())));
}

/// Somebody of the group who says what no rank does: nobody panics.
#[test]
fn a_rank_that_cannot_be_ends_the_meeting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let error = std::thread::scope(|scope| {
        let zero = scope.spawn(|| Rendezvous::by_file(&path, 0, 2).time_out(PATIENT).join().unwrap_err());
        let advert = await_advert(&path);
        let _stream = greet(&advert, advert.token(), 7);
        zero.join().unwrap().to_string()
    });
    assert!(error.contains("rank 7 is none of 2"), "{error}");
}

#[test]
fn a_process_that_ends_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let found = processes(by_file(&folder.path().join("file"), 3), |rank| match rank.rank() {
        1 => {
            rank.send(0, vec![7]);
            None // its connections are closed
        }
        zero_or_two => {
            if zero_or_two == 0 {
                assert_eq!(rank.receive_each(&[1]).unwrap(), [[7]]);
            }
            rank.receive_each(&[1]).err().map(|error| error.to_string())
        }
    });
    let told = |rank: usize| {
        Ok(Some(format!("rank 1 failed while this rank, {rank}, waited for it: it has left the group")))
    };
    assert_eq!(found, [told(2), Ok(None), told(0)]);
}

/// A process that is stopped takes nothing; whoever sends to it is not stopped with it.
#[test]
fn a_process_that_takes_nothing_is_waited_for_until_the_time_is_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _other_end = listener.accept().unwrap();
    let mailbox = std::sync::Arc::new(super::super::mailbox::Mailbox::new(0, 2));
    let sockets = super::super::sockets::Sockets::start(vec![None, Some(stream)], &mailbox).unwrap();
    let member =
        super::super::communicator::Member { rank: 0, size: 2, local_rank: 0, is_one_process: false };
    let rank = Communicator::new(member, mailbox, Box::new(sockets)).time_out(Duration::from_millis(100));
    rank.send(1, vec![0; 64 << 20]);
    let error = rank.receive_each(&[1]).unwrap_err().to_string();
    assert!(error.contains("rank 1 failed") && error.contains("it takes no messages"), "{error}");
}

#[test]
fn launchers_say_where_ranks_meet() {
    let found = |variables: &[(&str, &str)]| {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        let found = Rendezvous::from_variables(|name| variables.get(name).map(|&text| text.to_owned()));
        found
            .map(|one| format!("{} of {} at {}", one.rank, one.ranks, one.place))
            .map_err(|error| error.to_string())
    };
    let torchrun = [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "node0"), ("MASTER_PORT", "29500")];
    assert_eq!(found(&torchrun).unwrap(), "1 of 4 at node0:29500");
    let agent = [&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
    assert_eq!(found(&agent).unwrap(), "1 of 4 at node0:29501");
    let named = [&agent[..], &[(VARIABLE, "node1:7")]].concat();
    assert_eq!(found(&named).unwrap(), "1 of 4 at node1:7");
    let file = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), (VARIABLE, "/shared/a:b")];
    assert_eq!(found(&file).unwrap(), "0 of 2 at /shared/a:b");
    let six = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MASTER_ADDR", "::1"), ("MASTER_PORT", "80")];
    assert_eq!(found(&six).unwrap(), "0 of 2 at [::1]:80");
    for (variables, part) in [
        (&torchrun[2..], "none of RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID is set"),
        (&torchrun[..1], "WORLD_SIZE is not set"),
        (&torchrun[..2], "neither WINDROW_RENDEZVOUS nor MASTER_ADDR is set"),
        (&torchrun[..3], "MASTER_PORT is not set"),
        (&[("RANK", "-1"), ("WORLD_SIZE", "2")], "RANK is \"-1\", which is no number"),
    ] {
        assert!(found(variables).unwrap_err().contains(part), "{:?}", found(variables));
    }
}

#![allow(clippy::unwrap_used, reason = "tests")]

use super::{Elected, Master, Report, Sentinels, elect};
use crate::config::server::{Login, Server, ServerAddress};
use crate::runtime::{self, Pending};
use crate::transport::connection::Nobody;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(60);
const AGE: Duration = Duration::from_secs(100);

fn place(port: u16) -> ServerAddress {
    ServerAddress::tcp("127.0.0.1".to_owned(), port)
}

fn report(port: u16, epoch: u64, age: u64) -> Option<Report> {
    Some(Report { place: place(port), epoch, age: Duration::from_secs(age) })
}

fn elected(reports: &[Option<Report>], current: Option<u16>) -> Option<(ServerAddress, u64, bool)> {
    let current = current.map(place);
    let Elected { place, age, is_agreed } = elect(reports, current.as_ref())?;
    Some((place, age.as_secs(), is_agreed))
}

#[test]
fn minority_of_sentinels_names_no_master() {
    assert_eq!(elected(&[None], None), None);
    assert_eq!(elected(&[report(1, 0, 9)], None), Some((place(1), 9, true)));
    assert_eq!(elected(&[report(1, 0, 9), None], None), None);
    assert_eq!(elected(&[None, None, report(1, 7, 9)], None), None);
    assert_eq!(elected(&[report(1, 7, 9), None, None, report(1, 7, 9)], None), None);
}

#[test]
fn highest_epoch_wins_then_the_most_sentinels() {
    // One sentinel missed a failover, or was the first to learn of the next one.
    let stale = [report(1, 3, 500), report(2, 4, 9), report(2, 4, 7)];
    assert_eq!(elected(&stale, Some(1)), Some((place(2), 7, true)));
    assert_eq!(elected(&stale[..2], Some(1)), Some((place(2), 0, false)));
    let ahead = [report(1, 3, 500), report(1, 3, 500), report(2, 4, 9)];
    assert_eq!(elected(&ahead, Some(1)), Some((place(2), 0, false)));
    // The sentinels report no epochs, so the place that most of them report wins.
    let most = [report(1, 0, 500), report(2, 0, 9), report(2, 0, 7)];
    assert_eq!(elected(&most, Some(1)), Some((place(2), 7, true)));
    // One server under two names: the current connection is kept.
    let tie = [report(1, 0, 9), report(2, 0, 9), None];
    assert_eq!(elected(&tie, None), Some((place(1), 0, false)));
    assert_eq!(elected(&tie, Some(2)), Some((place(2), 0, false)));
}

#[test]
fn age_is_what_a_majority_confirms() {
    // One sentinel has restarted, or reports a wrong age.
    let reports = [report(1, 4, 100), report(1, 4, 2), report(1, 4, 50)];
    assert_eq!(elected(&reports, None), Some((place(1), 50, true)));
    assert_eq!(elected(&reports[..2], None), Some((place(1), 2, true)));
}

/// The behaviour of a fake sentinel.
#[derive(Clone, Copy)]
enum Habit {
    Answers,
    IsLate,
    NeverAnswers,
}

/// Starts a server that answers as a sentinel, and as a master if it receives ROLE. It reports a
/// master at `port`, or at its own port if `port` is 0, with this epoch. Returns its own port.
fn fake(port: u16, epoch: u64, habit: Habit) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let own = listener.local_addr().unwrap().port();
    let port = if port == 0 { own } else { port };
    thread::spawn(move || {
        for connection in listener.incoming() {
            thread::spawn(move || serve(&connection.unwrap(), port, epoch, habit));
        }
    });
    own
}

fn serve(connection: &TcpStream, port: u16, epoch: u64, habit: Habit) -> Option<()> {
    let mut reader = BufReader::new(connection);
    let mut writer = connection;
    loop {
        let request = read_request(&mut reader)?;
        let port = port.to_string();
        let reply = match request.join(" ").as_str() {
            "SENTINEL get-master-addr-by-name orders" => array(&["127.0.0.1", &port]),
            "SENTINEL master orders" => {
                let epoch = epoch.to_string();
                let age = AGE.as_millis().to_string();
                let known = ["ip", "127.0.0.1", "port", &port, "config-epoch", &epoch];
                array(&[&known[..], &["role-reported-time", &age]].concat())
            }
            "ROLE" => array(&["master", "0"]),
            _ => "%0\r\n".to_owned(),
        };
        match habit {
            Habit::NeverAnswers => continue,
            Habit::IsLate => thread::sleep(Duration::from_millis(5)),
            Habit::Answers => {}
        }
        writer.write_all(reply.as_bytes()).ok()?;
    }
}

fn array(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<_> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}

fn read_request(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let number = |reader: &mut _| {
        let mut line = String::new();
        BufRead::read_line(reader, &mut line).ok()?;
        line.get(1..)?.trim_end().parse::<usize>().ok()
    };
    let count = number(reader)?;
    let word = |_| {
        let mut word = vec![0; number(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        Some(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned())
    };
    (0..count).map(word).collect()
}

fn sentinels(ports: &[u16]) -> Arc<Sentinels> {
    let server = |port: &u16| {
        let login = Login::default();
        Server { place: place(*port), login, tls: None, is_discovered: false }
    };
    let sentinels = ports.iter().map(server).collect();
    let service = "orders".to_owned();
    let login = Login::default();
    Arc::new(Sentinels { sentinels, service, login, tls: None })
}

fn run<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = oneshot::channel();
    let task = async move { drop(sender.send(work.await)) };
    runtime::begin(task).unwrap();
    Pending::new(receiver).block_for(PATIENCE).expect("done before the deadline")
}

/// Returns the place of the master and its age, or the reason why there is none.
fn open(ports: &[u16]) -> Result<(ServerAddress, Duration), String> {
    let sentinels = sentinels(ports);
    run(async move {
        let Master::<Nobody> { server, age, .. } =
            sentinels.open().await.map_err(|failure| failure.detail)?;
        Ok((server.place.clone(), age))
    })
}

fn still_name(ports: &[u16], port: u16) -> Option<bool> {
    let sentinels = sentinels(ports);
    run(async move { sentinels.still_name(&place(port)).await })
}

/// A port on which nothing listens.
fn closed_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn stale_sentinel_that_answers_first_is_not_followed() {
    let [old, new] = [0, 0].map(|port| fake(port, 0, Habit::Answers));
    for epochs in [(3, 4), (0, 0)] {
        let stale = fake(old, epochs.0, Habit::Answers);
        let others = [(), ()].map(|()| fake(new, epochs.1, Habit::IsLate));
        let all = [stale, others[0], others[1]];
        assert_eq!(open(&all), Ok((place(new), AGE)));
        assert_eq!(still_name(&all, old), Some(false));
        assert_eq!(still_name(&all, new), Some(true));
    }
}

#[test]
fn newer_of_two_reports_wins_if_the_third_sentinel_hangs() {
    let [old, new] = [0, 0].map(|port| fake(port, 0, Habit::Answers));
    let hangs = fake(old, 9, Habit::NeverAnswers);
    let all = [fake(old, 3, Habit::Answers), fake(new, 4, Habit::IsLate), hangs];
    // No majority confirms how long the new server has been the master.
    assert_eq!(open(&all), Ok((place(new), Duration::ZERO)));
    assert_eq!(still_name(&all, old), Some(false));
}

#[test]
fn no_master_without_a_majority_of_the_sentinels() {
    let master = fake(0, 0, Habit::Answers);
    let sentinel = fake(master, 4, Habit::Answers);
    let one = closed_port();
    let other = closed_port();
    let why = open(&[sentinel, one, other]).unwrap_err();
    assert!(why.contains("2 of 3 sentinels named no master, 2 must: "), "{why}");
    assert!(why.contains(&format!("sentinel 127.0.0.1:{one}: ")), "{why}");
    assert_eq!(still_name(&[sentinel, one, other], master), None);
    assert_eq!(still_name(&[sentinel, sentinel, other], master), Some(true));
    assert_eq!(open(&[sentinel]), Ok((place(master), AGE)));
}

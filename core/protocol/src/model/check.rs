//! Runs the searches of `scopes.rs` and prints their sizes. `make model` runs the test in this file.

use super::action::Action;
use super::scope::Scope;
use super::scopes::scopes;
use super::world::World;
use stateright::{Checker, CheckerBuilder, Expectation, HasDiscoveries, Model, Path};
use std::time::Instant;

fn checker(scope: &Scope) -> CheckerBuilder<Scope> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    scope.clone().checker().threads(threads).finish_when(HasDiscoveries::AnyFailures)
}

/// Searches the whole scope and returns the number of distinct states. Panics if a property is violated or an event
/// that must happen is never reached.
fn search(scope: &Scope) -> usize {
    let began = Instant::now();
    // Depth-first search needs less memory than breadth-first search, which `fail` uses to find a short
    // path.
    let searched = checker(scope).spawn_dfs().join();
    println!(
        "{}: {} states, {} of them distinct, up to {} steps, {:.0} s",
        scope.name,
        searched.state_count(),
        searched.unique_state_count(),
        searched.max_depth(),
        began.elapsed().as_secs_f64(),
    );
    for property in scope.properties() {
        let found = searched.discovery(property.name);
        match (property.expectation, found) {
            (Expectation::Always, Some(_)) => fail(scope, property.name),
            (Expectation::Sometimes, None) => {
                panic!("{}: never reached: {}", scope.name, property.name)
            }
            _ => {}
        }
    }
    searched.unique_state_count()
}

/// Finds the shortest path to the violation and panics with it.
fn fail(scope: &Scope, claim: &str) -> ! {
    let searched = checker(scope).spawn_bfs().join();
    let properties = scope.properties().into_iter();
    let mut found = properties
        .filter(|property| property.expectation == Expectation::Always)
        .filter_map(|property| Some((property.name, searched.discovery(property.name)?)));
    let (claim, path) = found.next().unwrap_or_else(|| panic!("not reproduced: {claim}"));
    panic!("{}: violated: {claim}:\n{}", scope.name, story(path))
}

fn story(path: Path<World, Action>) -> String {
    let mut story = String::new();
    for (world, action) in path.into_vec() {
        let tokens: Vec<_> = (0..world.nodes.len()).map(|node| world.tokens_on(node)).collect();
        let valid: Vec<_> =
            world.valid().map(|held| (held.token, held.claim.lease().fence())).collect();
        story += &format!("  tick {}: tokens {tokens:?}, valid {valid:?}", world.tick);
        if let Some(wrong) = world.wrong {
            story += &format!(", {wrong}");
        }
        story += &action.map_or_else(String::new, |action| format!("\n{action:?}\n"));
    }
    story
}

#[test]
fn every_order_of_events_satisfies_the_claims() {
    let deep = std::env::var("MODEL").is_ok_and(|how| how == "deep");
    let only = std::env::var("SCOPE").unwrap_or_default();
    let scopes = scopes(deep).into_iter().filter(|scope| scope.name.contains(&only));
    let states: usize = scopes.map(|scope| search(&scope)).sum();
    println!("model: {states} distinct states, no violation");
}

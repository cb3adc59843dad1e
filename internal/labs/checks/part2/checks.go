package part2

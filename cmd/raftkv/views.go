package main

import (
	"fmt"
	"maps"
	"slices"

	"raftkv/api"
)

// clusterTable has a row for each server: what it says of itself.
func clusterTable(views []nodeView) [][]any {
	rows := [][]any{{"ENDPOINT", "ID", "ROLE", "TERM", "LEADER", "COMMIT", "APPLIED", "LAG", "LOG", "SNAPSHOT", "DISK", "KEYS", "SESSIONS", "CONFIGURATION"}}
	var committed uint64
	for _, v := range views {
		if v.Status != nil {
			committed = max(committed, v.Status.Commit)
		}
	}
	for _, v := range views {
		s := v.Status
		if s == nil {
			rows = append(rows, []any{v.Endpoint, "-", "no answer: " + v.Error})
			continue
		}
		rows = append(rows, []any{
			v.Endpoint, s.ID, s.Role, s.Term, s.Leader, s.Commit, s.Applied,
			committed - min(s.Applied, committed), // behind the furthest commit that anybody knows
			fmt.Sprintf("%d-%d", s.FirstIndex, s.LastIndex), s.SnapshotIndex,
			fmt.Sprintf("%s+%s", bytesText(s.LogBytes), bytesText(s.SnapshotBytes)),
			s.Keys, s.Sessions, s.Configuration.Index,
		})
	}
	return rows
}

// bytesText writes a size in three digits.
func bytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	size, unit := float64(n)/1024, 0
	for size >= 1024 {
		size, unit = size/1024, unit+1
	}
	if size < 10 {
		return fmt.Sprintf("%.1f%c", size, units[unit])
	}
	return fmt.Sprintf("%.0f%c", size, units[unit])
}

// seenBy has a row for each server that answers and a column for each member: what
// the one knows of the other. In a column, one sees who has lost a server; in a
// row, whom a server has lost. The heading alone if nobody answers.
func seenBy(views []nodeView) [][]any {
	members := map[uint64]bool{}
	for _, v := range views {
		if v.Status != nil {
			members[v.Status.ID] = true
			for _, m := range v.Status.Members {
				members[m.ID] = true
			}
		}
	}
	ids := slices.Sorted(maps.Keys(members))
	heading := []any{"AS SEEN BY", "TERM"}
	for _, id := range ids {
		heading = append(heading, fmt.Sprintf("SERVER %d", id))
	}
	rows := [][]any{heading}
	for _, v := range views {
		s := v.Status
		if s == nil {
			continue
		}
		row := []any{fmt.Sprintf("server %d", s.ID), s.Term}
		for _, id := range ids {
			row = append(row, sight(s, id))
		}
		rows = append(rows, row)
	}
	return rows
}

// sight is what a server knows of another one, or of itself.
func sight(s *api.StatusResponse, id uint64) string {
	if id == s.ID {
		return "itself: " + s.Role
	}
	i := slices.IndexFunc(s.Members, func(m api.Member) bool { return m.ID == id })
	text := "no member"
	if i >= 0 {
		text = "lost"
		if s.Members[i].Connected {
			text = "connected"
		}
	}
	if s.Leader == id {
		text += ", leads"
	}
	return text
}

// warnings says what an operator should not overlook, a line each.
func warnings(views []nodeView) (lines []string) {
	clusters := map[string]bool{}
	var term uint64 // the latest that anybody is in
	answers := 0
	for _, v := range views {
		if v.Status != nil {
			answers++
			clusters[v.Status.Cluster] = true
			term = max(term, v.Status.Term)
		}
	}
	if len(clusters) > 1 {
		return []string{fmt.Sprintf("warning: these servers belong to %d clusters; check --endpoints", len(clusters))}
	}
	for _, v := range views {
		if s := v.Status; s != nil && s.Role == "leader" && s.Term < term {
			lines = append(lines, fmt.Sprintf("warning: server %d calls itself leader of term %d, but others are in term %d: it is cut off and can commit nothing", s.ID, s.Term, term))
		}
	}
	if leaderOf(views) == 0 && answers > 0 {
		lines = append(lines, "warning: no server that answers leads: an election is under way, or too few voters can reach each other")
	}
	return lines
}

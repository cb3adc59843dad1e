// Package grade marks a folder of submissions: one folder or zip a student.
//
// Nothing of a submission is trusted. Of its files only those are read that the
// part asks for; they are inspected before they are compiled, run in a process
// without network and within limits, and judged by what comes over a pipe that
// the student's code does not have. The same submissions give the same marks,
// byte for byte.
//
//	submission.go  the files of a folder or a zip
//	gate.go        what is refused before anything is compiled
//	confine*.go    a process within limits
//	grade.go       all of it for a class, several at a time; resuming
//	report.go      the marks as CSV, JSON and Gradescope's JSON
//	html.go        the class as a matrix, and a page for each student
//
// docs/grading.md is for whoever grades.
package grade

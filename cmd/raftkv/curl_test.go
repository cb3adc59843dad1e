//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// The exit codes of curl.
const (
	curlWrongUse = 2
	curlNoServer = 7
	curlTimeout  = 28
)

// curl does what curl does, as far as docs/runbook.md uses it: -s, -i, -m SECONDS,
// -H HEADER, --json BODY and an address.
func curl(args []string) int {
	var address, body string
	headers := false
	client := &http.Client{}
	header := http.Header{}
	for len(args) > 0 {
		option := args[0]
		args = args[1:]
		if !strings.HasPrefix(option, "-") {
			address = "http://" + option
			continue
		}
		if option == "-s" || option == "-si" {
			headers = option == "-si"
			continue
		}
		if len(args) == 0 {
			return curlWrongUse
		}
		value := args[0]
		args = args[1:]
		switch option {
		case "-m":
			seconds, err := strconv.Atoi(value)
			if err != nil {
				return curlWrongUse
			}
			client.Timeout = time.Duration(seconds) * time.Second
		case "-H":
			name, text, _ := strings.Cut(value, ": ")
			header.Set(name, text)
		case "--json":
			body = value
			header.Set("Content-Type", "application/json")
		default:
			return curlWrongUse
		}
	}
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		return curlWrongUse
	}
	request.Header = header
	response, err := client.Do(request)
	if err != nil {
		return curlFailed(err)
	}
	defer response.Body.Close()
	var out bytes.Buffer
	if headers {
		fmt.Fprintf(&out, "%s %s\r\n", response.Proto, response.Status)
		response.Header.Write(&out)
		out.WriteString("\r\n")
	}
	if _, err := io.Copy(&out, response.Body); err != nil {
		return curlFailed(err)
	}
	io.Copy(os.Stdout, &out)
	return 0
}

func curlFailed(err error) int {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return curlTimeout
	}
	return curlNoServer
}

"""Output formats of a run: certificate, page, JUnit, Prometheus, terminal.

Everything here renders data that is judged already. Nothing measures, judges or reads a clock; the same certificate
gives the same bytes.
"""
